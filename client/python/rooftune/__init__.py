"""Client of rooftuned: fetch tuned GPU kernels and launch them."""
from .client import Client, Record, RooftuneError
from .kernel import Kernel

__all__ = ["Client", "Kernel", "Record", "RooftuneError"]
__version__ = "0.1.0"
