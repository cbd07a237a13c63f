"""Launches a kernel from its recipe.json alone, with what a launch needs worked out beforehand, so that capturing a
graph costs little. The full launcher with its checks is client/python; this one needs neither gRPC nor protobuf."""

import importlib.util
import pathlib
import struct

_INTEGERS = {4: "<i", 8: "<q"}
_FLOATS = {4: "<f", 8: "<d"}


def load_driver(root: pathlib.Path):
    """client/python/rooftune/driver.py without its package, which imports gRPC."""
    path = root / "client" / "python" / "rooftune" / "driver.py"
    spec = importlib.util.spec_from_file_location("rooftune_driver", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def value_of(quantity, default=0) -> int:
    """Of an IntExpr in proto3's JSON, where 64-bit integers are texts and zeros are left out."""
    return int(quantity.get("value", default)) if quantity else default


class Recipe:
    """A loaded kernel. `allocate(bytes)` gives (owner, address) of device memory that lives as long as its owner."""

    def __init__(self, driver_module, driver, record: dict, binary: bytes, allocate):
        self._module, self._driver, self.record, self.plan = driver_module, driver, record, record["plan"]
        driver.check_arch(self.plan["arch"])
        loaded = driver.load(binary)
        self._functions = {}
        for launch in self.plan["launch"]:
            symbol = launch["symbol"]
            if symbol not in self._functions:
                self._functions[symbol] = driver.function(loaded, symbol)
            if launch.get("shared_opt_in"):
                driver.allow_shared(self._functions[symbol], value_of(launch.get("dynamic_shared_bytes")))
            if value_of(launch.get("cluster_x")) > driver_module.PORTABLE_CLUSTER:
                driver.allow_large_cluster(self._functions[symbol])
        self.workspace_bytes = value_of(self.plan.get("workspace_bytes"))
        self._zero = self.plan.get("workspace_init") == "ZERO"
        self._owner, self._workspace = allocate(self.workspace_bytes) if self.workspace_bytes else (None, 0)
        self._zero_once = self.plan.get("workspace_init") == "ZERO_ONCE"

    def tensors(self) -> list:
        """(name, role, dtype, shape) of every tensor."""
        return [
            (t["name"], t.get("role"), t.get("dtype"), tuple(value_of(d) for d in t["dim"]))
            for t in self.plan["tensor"]
        ]

    def bind(self, addresses: dict, scalars: dict):
        """A function of a stream (CUstream as integer) that launches on these device addresses by tensor name."""
        missing = [t["name"] for t in self.plan["tensor"] if t["name"] not in addresses]
        if missing:
            raise TypeError(f"the recipe takes tensors that nobody gives: {', '.join(missing)}")
        defaults = {s["name"]: s.get("default_value", 0) for s in self.plan.get("scalar", [])}
        launches = [self._prepared(launch, addresses, {**defaults, **scalars}) for launch in self.plan["launch"]]

        def run(stream):
            if self._workspace and (self._zero or self._zero_once):
                self._zero_once = False
                self._driver.zero(self._workspace, self.workspace_bytes, stream)
            for function, grid, block, cluster, cooperative, shared, values in launches:
                self._driver.launch(function, grid, block, cluster, cooperative, shared, stream, values)

        return run

    def _prepared(self, launch, addresses, scalars):
        values = [self._argument(argument, addresses, scalars) for argument in launch.get("argument", [])]
        # An empty quantity means one.
        grid = tuple(max(1, value_of(launch.get(f"grid_{axis}"))) for axis in "xyz")
        block = tuple(max(1, value_of(launch.get(f"block_{axis}"))) for axis in "xyz")
        return (
            self._functions[launch["symbol"]],
            grid,
            block,
            max(1, value_of(launch.get("cluster_x"))),
            bool(launch.get("cooperative")),
            value_of(launch.get("dynamic_shared_bytes")),
            values,
        )

    def _argument(self, argument, addresses, scalars) -> bytes:
        size = int(argument["size"])
        if "tensor" in argument:
            return struct.pack("<Q", addresses[argument["tensor"]])
        if "scalar" in argument:
            return struct.pack(_FLOATS[size], float(scalars[argument["scalar"]]))
        if "integer" in argument:
            return struct.pack(_INTEGERS[size], value_of(argument["integer"]))
        if "tensor_map" in argument:
            return self._tensor_map(argument["tensor_map"], addresses)
        if "workspace_offset" in argument:
            return struct.pack("<Q", self._workspace + value_of(argument["workspace_offset"]))
        raise NotImplementedError(f"an argument of a kind that this launcher does not know: {sorted(argument)}")

    def _tensor_map(self, spec, addresses) -> bytes:
        lists = [[value_of(q) for q in spec.get(key, [])] for key in ("dim", "stride_bytes", "box", "element_stride")]
        modes = tuple(int(spec.get(key, 0)) for key in ("interleave", "swizzle", "l2_promotion", "oob_fill"))
        return self._driver.tensor_map(addresses[spec["tensor"]], spec["dtype"], *lists, modes)
