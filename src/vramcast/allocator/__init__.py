"""torch's CUDA caching allocator as arithmetic: sizes in, reserved bytes out, no GPU and no
torch."""
