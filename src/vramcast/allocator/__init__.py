"""torch's CUDA caching allocator as arithmetic: sizes in, reserved bytes out. No GPU, no torch."""
