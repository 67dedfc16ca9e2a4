"""Models that everybody knows by name: `hf:gpt2`, `timm:resnet50`, `torchvision:resnet50`.

Only their configuration is known here; weights are random, and nothing is fetched.

    catalogue        the names, and where the configuration of each is
    tasks            what a model may be trained for, and with which sizes
    configurations   a name -> a configuration of its library
    sources          a name and a task -> the model, and its batches
    adapters         frozen weights of few bits, and LoRA
    workloads        a name -> the function that builds a training step
"""
