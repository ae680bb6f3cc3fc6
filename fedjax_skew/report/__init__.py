"""Tables and figures from results, beside the papers' own numbers.

Figures need matplotlib, which is imported when the first one is drawn.
"""
