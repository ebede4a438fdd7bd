"""A processor that tilewright has never heard of: a systolic array, simulated in numpy.

It has a memory of its own, which operands are moved into, keeps matrices in tiles of four by four,
and is fastest in an element type of sixteen bytes, which no processor before had. One
implementation computes everything on it. Its entry points:

    [tilewright.element_types]
    longdouble = toy_accelerator.device:EXTENDED
    [tilewright.accesses]
    toy = toy_accelerator.device:ACCESS
    [tilewright.builders]
    toy = toy_accelerator.builder:BUILDER
    [tilewright.implementations]
    systolic = toy_accelerator.spec:SPEC
"""
