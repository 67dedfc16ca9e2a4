"""CUDA extensions that a program compiles for itself: their host code runs, their kernels do
nothing."""
