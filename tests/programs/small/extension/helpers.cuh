#pragma once
__device__ __forceinline__ float doubled(float x) { return __fadd_rn(x, x); }
