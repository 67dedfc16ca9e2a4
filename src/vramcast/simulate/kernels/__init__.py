import torch
def install():
    global lib
    lib = torch.library.Library("aten","IMPL")
    def choice(q,k,v,attn_mask=None,dropout_p=0.0,is_causal=False,*,scale=None,enable_gqa=False):
        if attn_mask is None and q.dtype in (torch.bfloat16, torch.float16): return 1
        return 2
    lib.impl("_fused_sdp_choice", choice, "Fake")
