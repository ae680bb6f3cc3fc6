"""Compiled programs are read and their work is counted."""

import jax
import jax.numpy as jnp
import pytest

from experiments import hlo, hlo_cost

TEXT = """HloModule jit_f, is_scheduled=true

%fused (p.0: f32[50,8], p.1: s32[]) -> f32[1,8] {
  %p.0 = f32[50,8]{1,0} parameter(0)
  %p.1 = s32[] parameter(1)
  %zero = s32[] constant(0)
  ROOT %row = f32[1,8]{1,0} dynamic-slice(%p.0, %p.1, %zero), dynamic_slice_sizes={1,8}
}

%gemm (a: f32[4,6], b: f32[6,8]) -> f32[4,8] {
  %a = f32[4,6]{1,0} parameter(0)
  %b = f32[6,8]{1,0} parameter(1)
  ROOT %dot = f32[4,8]{1,0} dot(%a, %b), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}

%condition (c: (s32[])) -> pred[] {
  %c = (s32[]) parameter(0)
  %limit = s32[]{:T(128)} constant(7)
  %now = s32[] get-tuple-element(%c), index=0
  ROOT %less = pred[]{:T(512)} compare(%now, %limit), direction=LT
}

%body (s: (s32[])) -> (s32[]) {
  %s = (s32[]) parameter(0)
  ROOT %t = (s32[], /*index=1*/f32[4,8]{1,0:T(8,128)S(1)}) tuple(%s)
}

ENTRY %main (x: f32[50,8], k: s32[], u: f32[4,6], v: f32[6,8]) -> f32[4,8] {
  %x = f32[50,8]{1,0} parameter(0)
  %k = s32[] parameter(1)
  %u = f32[4,6]{1,0} parameter(2)
  %v = f32[6,8]{1,0} parameter(3)
  %slice = f32[1,8]{1,0} fusion(%x, %k), kind=kLoop, calls=%fused
  %loop = (s32[]) while(%k), condition=%condition, body=%body, SCOPE
  %conv = (f32[2,3,6,6]{3,2,1,0}, u8[0]{0}) custom-call(%x, %v), TARGET
  ROOT %product = f32[4,8]{1,0} fusion(%u, %v), calls=%gemm, "estimated_cycles":"12"
}
"""
TEXT = TEXT.replace("SCOPE", 'metadata={op_name="jit(f)/vmap(steps)/while"}')
TEXT = TEXT.replace("TARGET", 'custom_call_target="__cudnn$convForward"')


def instruction(name: str) -> hlo.Instruction:
    program = hlo.parse(TEXT)
    return next(i for body in program.computations.values() for i in body if i.name == name)


def test_a_program_is_read():
    program = hlo.parse(TEXT)
    assert program.entry == "main"
    assert set(program.computations) == {"fused", "gemm", "condition", "body", "main"}
    product = instruction("product")
    assert (product.opcode, product.operands, product.called) == ("fusion", ("u", "v"), ("gemm",))
    assert product.cycles == 12
    assert instruction("conv").target == "__cudnn$convForward"
    assert [s.sizes for s in instruction("conv").shapes] == [(2, 3, 6, 6), (0,)]
    assert instruction("t").shapes[1].layout == "1,0:T(8,128)S(1)"


def test_a_loop_has_a_name_and_a_length():
    loop = instruction("loop")
    assert loop.scope == "steps"
    assert hlo.parse(TEXT).trips(loop) == 7


def test_a_fusion_moves_what_it_slices_and_computes_what_it_calls():
    program = hlo.parse(TEXT)
    slice_, product = instruction("slice"), instruction("product")
    assert hlo_cost.bytes_moved(program, slice_) == 4 * (8 + 8) + 4
    assert hlo_cost.bytes_moved(program, product) == 4 * (24 + 48 + 32)
    assert sum(f for _, f in hlo_cost.products(program, product)) == 2 * 4 * 6 * 8


def test_arrays_on_the_chip_move_nothing():
    program = hlo.parse(TEXT)
    assert hlo_cost.bytes_moved(program, instruction("t"), "S(1)") == 4 + 4
    assert hlo_cost.bytes_moved(program, instruction("t")) == 4 + 4 * 32 + 4


@pytest.mark.parametrize(
    ("stride", "padding", "groups"),
    [(1, "SAME", 1), (2, "VALID", 1), (1, "SAME", 4)],
)
def test_products_are_those_that_xla_counts(stride, padding, groups):
    def convolve(x, k):
        return jax.lax.conv_general_dilated(
            x, k, (stride, stride), padding, dimension_numbers=("NHWC", "HWIO", "NHWC"),
            feature_group_count=groups,
        )  # fmt: skip

    x, k = jnp.ones((2, 7, 7, 4)), jnp.ones((3, 3, 4 // groups, 8))
    compiled = jax.jit(convolve).lower(x, k).compile()
    program = hlo.parse(compiled.as_text())
    found = [
        f for i in program.computations[program.entry] for _, f in hlo_cost.products(program, i)
    ]
    assert sum(found) == compiled.cost_analysis()["flops"]


@pytest.mark.parametrize(
    ("kind", "shapes"),
    [
        ("Forward", ("f32[2,4,7,7]", "f32[8,4,3,3]", "f32[2,8,5,5]")),
        ("BackwardFilter", ("f32[2,4,7,7]", "f32[2,8,5,5]", "f32[8,4,3,3]")),
        ("BackwardInput", ("f32[2,8,5,5]", "f32[8,4,3,3]", "f32[2,4,7,7]")),
    ],
)
def test_the_convolutions_of_cudnn_cost_the_same_in_all_directions(kind, shapes):
    text = (
        "ENTRY %main () -> f32[] {\n"
        f"  %a = {shapes[0]}{{3,2,1,0}} parameter(0)\n"
        f"  %b = {shapes[1]}{{3,2,1,0}} parameter(1)\n"
        f"  ROOT %c = ({shapes[2]}{{3,2,1,0}}, u8[0]{{0}}) custom-call(%a, %b), "
        "window={size=3x3}, dim_labels=bf01_oi01->bf01, "
        f'custom_call_target="__cudnn$conv{kind}"\n'
        "}\n"
    )
    program = hlo.parse(text)
    found = [f for i in program.computations["main"] for _, f in hlo_cost.products(program, i)]
    assert found == [2 * 2 * 8 * 25 * 4 * 9]
