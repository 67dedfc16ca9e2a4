/* Stands for cuBLAS where cuDNN is asked without a GPU: there cuBLAS could not start either. */
#include <stddef.h>

size_t cublasLtGetVersion(void) { return 130002; }
size_t cublasLtGetCudartVersion(void) { return 13000; }

#define NOT_INITIALIZED 1
#define FAILS(name) \
  int name(void) { return NOT_INITIALIZED; }

FAILS(cublasLtCreate)
FAILS(cublasLtDestroy)
FAILS(cublasLtGetProperty)
FAILS(cublasLtMatmul)
FAILS(cublasLtMatmulAlgoGetHeuristic)
FAILS(cublasLtMatmulDescCreate)
FAILS(cublasLtMatmulDescDestroy)
FAILS(cublasLtMatmulDescGetAttribute)
FAILS(cublasLtMatmulDescSetAttribute)
FAILS(cublasLtMatmulPreferenceCreate)
FAILS(cublasLtMatmulPreferenceDestroy)
FAILS(cublasLtMatmulPreferenceSetAttribute)
FAILS(cublasLtMatrixLayoutCreate)
FAILS(cublasLtMatrixLayoutDestroy)
FAILS(cublasLtMatrixLayoutGetAttribute)
FAILS(cublasLtMatrixLayoutSetAttribute)
FAILS(cublasLtMatrixTransform)
FAILS(cublasLtMatrixTransformDescCreate)
FAILS(cublasLtMatrixTransformDescDestroy)
FAILS(cublasLtMatrixTransformDescGetAttribute)
FAILS(cublasLtMatrixTransformDescSetAttribute)
