"""True float64 runs of transformers models.

Their modules cast to float32 on the way (RMSNorm, rotary tables, softmax, ALiBi, the loss), so that `model.double()`
still rounds to float32. Inside `true_float64` those casts mean float64, and any operation that yet returns a narrower
tensor is an error. Models must be built inside, too.
"""

from contextlib import contextmanager

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter

NARROW = (torch.float32, torch.bfloat16, torch.float16)


class NoNarrowFloats(TorchDispatchMode):
    """Raises when an operation, forward or backward, returns float32 or narrower. It makes everything slower."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for tensor in tree_iter(out):
            if isinstance(tensor, torch.Tensor) and tensor.dtype in NARROW:
                raise RuntimeError(f"{func} returned {tensor.dtype} in a float64 run")
        return out


@contextmanager
def true_float64():
    float32 = torch.float32
    torch.float32 = torch.float = torch.float64
    torch.Tensor.float = torch.Tensor.double
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.float32 = torch.float = float32
        del torch.Tensor.float  # the inherited method is visible again
        torch.set_default_dtype(torch.float32)
