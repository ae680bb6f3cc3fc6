"""The words and numbers that all renderings of a table share."""

from fedjax_skew.report import names, result_table
from fedjax_skew.report.reference import Header
from fedjax_skew.report.result_table import Cell, Table

NOT_RUN = "--"


class Notes:
    """Numbers sentences in order of first use; the same sentence keeps its number."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def numbers(self, texts: tuple[str, ...]) -> str:
        """The numbers of some sentences, ``"1,3"``, new ones being added; empty for none."""
        for text in texts:
            if text not in self.texts:
                self.texts.append(text)
        return ",".join(str(i) for i, text in enumerate(self.texts, 1) if text in texts)


def header(head: Header) -> str:
    """A header's label, or its key if it has none."""
    return head.label or head.key


def mean(cell: Cell, column: Header) -> str:
    """The measured mean, or that there is none."""
    if cell.mean is None:
        return "failed" if cell.failure else NOT_RUN
    return f"{cell.mean:.{column.decimals}f}"


def spread(cell: Cell, column: Header, table: Table) -> str:
    """Standard deviation, and the number of seeds where it is not the usual one."""
    words = [] if cell.std is None else [f"± {cell.std:.{column.decimals}f}"]
    if cell.values and len(cell.values) != result_table.seed_counts(table)[-1]:
        words.append(f"n={len(cell.values)}")
    return " ".join(words)


def paper(cell: Cell, column: Header) -> tuple[str, str]:
    """The paper's number and the signed gap to it, each empty if there is none."""
    if cell.paper is None:
        return "", ""
    printed = f"{cell.paper:.{column.decimals}f}"
    if cell.gap is None:
        return printed, ""
    # Adding zero after rounding keeps a gap of -0.001 from showing as a negative zero.
    return printed, f"{round(cell.gap, column.decimals) + 0.0:+.{column.decimals}f}"


def remarks(cell: Cell) -> tuple[str, ...]:
    """Sentences that belong to a cell, its failure first."""
    return (*([f"Failed: {cell.failure}"] if cell.failure else []), *cell.notes)


def has_paper(table: Table) -> bool:
    """Whether any cell has a paper's number beside it."""
    return any(cell.paper is not None for cell in table.cells.values())


def agreement(table: Table, column: Header) -> str:
    """Rank agreement of a column with the paper."""
    spearman, methods = result_table.agreement(table, column)
    return NOT_RUN if spearman is None else f"{spearman:.2f} (n={methods})"


def legend(table: Table, paper_place: str) -> list[str]:
    """How to read the table.

    Args:
        table: the table.
        paper_place: where the rendering puts the paper's numbers, ``"In brackets"``.
    """
    counts = result_table.seed_counts(table)
    fewer = ", or over all of fewer" if table.reported == "mean_last_50" else ""
    sentences = [f"Measured: {names.reported(table.reported)}{fewer}."]
    if counts:
        seeds = "1 seed" if counts[-1] == 1 else f"{counts[-1]} seeds"
        std = "" if counts[-1] == 1 else "; mean ± standard deviation (divisor n - 1)"
        others = "; cells with fewer say n" if len(counts) > 1 else ""
        sentences.append(f"Over {seeds}{std}{others}.")
    if has_paper(table):
        if table.paper_reported:
            sentences.append(f"Paper: {names.reported(table.paper_reported)}.")
        sentences.append(f"{paper_place}: the paper's number and measured minus paper.")
        sentences.append("Spearman: agreement of the order of the n methods with the paper's.")
    if any(result_table.places(table, column) for column in table.columns):
        sentences.append("Bold: best measured mean of a column; underlined: second best.")
    return sentences
