"""Asks cuDNN which kernels it would choose. Its library answers for any GPU, and needs none."""
