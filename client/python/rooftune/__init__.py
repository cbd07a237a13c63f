"""Client of rooftuned: fetch tuned GPU kernels and launch them."""
from .client import Client, Record, RooftuneError
from .driver import CudaError
from .kernel import Kernel

__all__ = ["Client", "CudaError", "Kernel", "Record", "RooftuneError"]
__version__ = "0.1.0"
