def install():
    import torch
    torch.cuda.is_available=lambda: True; torch.cuda._lazy_init=lambda: None; torch.cuda.is_bf16_supported=lambda *a,**k: True
    torch.cuda.current_device=lambda: 0; torch.cuda.device_count=lambda: 1; torch.cuda.get_device_capability=lambda *a: (9,0)
    torch.cuda.is_current_stream_capturing=lambda: False
    torch.cuda.manual_seed_all=lambda s: None; torch.cuda.manual_seed=lambda s: None
    torch.cuda.get_rng_state=lambda *a: torch.empty(16,dtype=torch.uint8); torch.cuda.set_rng_state=lambda *a,**k: None
    torch.cuda.synchronize=lambda *a: None
