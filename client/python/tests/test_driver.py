"""What reaches the driver, seen through a stand-in for its library."""
import ctypes
import unittest

from rooftune import driver as driver_module
from rooftune.driver import CudaError, Driver


class FakeLibrary:
    """Succeeds at everything, except calls named in `failing`; notes names and keeps launches."""

    def __init__(self):
        self.names, self.launch, self.failing = [], None, {}

    def __getattr__(self, name):
        def call(*args):
            self.names.append(name)
            if name == "cuGetErrorString":
                args[1]._obj.value = b"invalid argument"
                return 0
            if name == "cuDevicePrimaryCtxRetain":
                args[0]._obj.value = 0xC0
            if name == "cuDeviceGetAttribute":
                args[0]._obj.value = {75: 9, 76: 0}[args[1]]
            if name == "cuTensorMapEncodeTiled":
                self.note_map(args)
            if name.startswith("cuLaunchKernel"):
                self.launch = self.note(name, args)
            return self.failing.get(name, 0)
        return call

    def note_map(self, args):
        self.map = {"aligned": args[0].value % 64 == 0, "type": args[1].value, "rank": args[2].value,
                    "address": args[3].value, "dims": list(args[4]), "strides": list(args[5])[:args[2].value - 1],
                    "box": list(args[6]), "element_strides": list(args[7]), "modes": [v.value for v in args[8:]]}
        ctypes.memmove(args[0].value, bytes(range(128)), 128)

    @staticmethod
    def values(pointers, sizes):
        return [ctypes.string_at(pointers[i], size) for i, size in enumerate(sizes)]

    def note(self, name, args):
        if name == "cuLaunchKernel":
            return {"grid": [v.value for v in args[1:4]], "block": [v.value for v in args[4:7]], "shared": args[7].value,
                    "stream": args[8].value, "values": self.values(args[9], (4, 8))}
        config = args[0]._obj
        attributes = [config.attributes[i] for i in range(config.count)]
        return {"grid": list(config.grid), "block": list(config.block), "shared": config.shared_bytes,
                "stream": config.stream, "values": self.values(args[2], (4, 8)),
                "attributes": [(a.id, list(a.value.cluster)) for a in attributes]}


class DriverTest(unittest.TestCase):
    def setUp(self):
        self.cuda = FakeLibrary()
        self.driver = Driver(1, self.cuda)
        self.cuda.names.clear()

    def test_structures_are_laid_out_as_in_cuda_h(self):
        config, attribute = driver_module._LaunchConfig, driver_module._LaunchAttribute
        self.assertEqual([config.grid.offset, config.block.offset, config.shared_bytes.offset, config.stream.offset,
                          config.attributes.offset, config.count.offset, ctypes.sizeof(config)], [0, 12, 24, 32, 40, 48, 56])
        self.assertEqual([attribute.value.offset, ctypes.sizeof(attribute)], [8, 72])

    def test_plain_launch(self):
        self.driver.launch(ctypes.c_void_p(5), (3, 2, 1), (128, 1, 1), 1, False, 4096, 77, [b"\1\2\3\4", b"12345678"])
        self.assertEqual(self.cuda.launch, {"grid": [3, 2, 1], "block": [128, 1, 1], "shared": 4096, "stream": 77,
                                               "values": [b"\1\2\3\4", b"12345678"]})
        self.assertEqual(self.cuda.names, ["cuCtxPushCurrent_v2", "cuLaunchKernel", "cuCtxPopCurrent_v2"])

    def test_cluster_launch(self):
        self.driver.launch(ctypes.c_void_p(5), (8, 1, 2), (256, 1, 1), 4, False, 0, None, [b"\1\2\3\4", b"12345678"])
        self.assertEqual(self.cuda.launch, {"grid": [8, 1, 2], "block": [256, 1, 1], "shared": 0, "stream": None,
                                               "values": [b"\1\2\3\4", b"12345678"], "attributes": [(4, [4, 1, 1])]})
        self.assertIn("cuLaunchKernelEx", self.cuda.names)

    def test_cooperative_launch(self):
        for cluster, attributes in ((1, [(2, [1, 0, 0])]), (2, [(4, [2, 1, 1]), (2, [1, 0, 0])])):
            self.driver.launch(ctypes.c_void_p(5), (8, 1, 2), (256, 1, 1), cluster, True, 0, None, [b"\1\2\3\4", b"12345678"])
            self.assertEqual(self.cuda.launch["attributes"], attributes)

    def test_tensor_map(self):
        made = self.driver.tensor_map(1 << 40, "BF16", [40, 10, 3], [80, 1 << 36], [64, 32, 1], [1, 1, 1], (0, 3, 2, 0))
        self.assertEqual(made, bytes(range(128)))
        self.assertEqual(self.cuda.map, {"aligned": True, "type": 9, "rank": 3, "address": 1 << 40,
                                            "dims": [40, 10, 3], "strides": [80, 1 << 36], "box": [64, 32, 1],
                                            "element_strides": [1, 1, 1], "modes": [0, 3, 2, 0]})
        with self.assertRaisesRegex(CudaError, "3 dims, 1 strides and a box of 3"):
            self.driver.tensor_map(16, "BF16", [40, 10, 3], [80], [64, 32, 1], [1, 1, 1], (0, 3, 2, 0))
        self.cuda.failing["cuTensorMapEncodeTiled"] = 1
        with self.assertRaisesRegex(CudaError, r"cuTensorMapEncodeTiled: invalid argument \(1\)"):
            self.driver.tensor_map(16, "FP16", [40], [], [64], [1], (0, 3, 2, 0))

    def test_a_driver_without_tensor_maps(self):
        class Old(FakeLibrary):
            def __getattr__(self, name):
                if name == "cuTensorMapEncodeTiled":
                    raise AttributeError(name)
                return super().__getattr__(name)
        with self.assertRaisesRegex(CudaError, "CUDA 12.0"):
            Driver(1, Old()).tensor_map(16, "FP16", [40], [], [64], [1], (0, 3, 2, 0))

    def test_the_callers_context_comes_back_after_an_error(self):
        self.cuda.failing["cuLaunchKernel"] = 1
        with self.assertRaisesRegex(CudaError, r"cuLaunchKernel: invalid argument \(1\)"):
            self.driver.launch(ctypes.c_void_p(5), (1, 1, 1), (1, 1, 1), 1, False, 0, 0, [b"\0" * 4, b"\0" * 8])
        self.assertEqual(self.cuda.names[-1], "cuCtxPopCurrent_v2")

    def test_architecture(self):
        self.driver.check_arch("sm_90")
        self.driver.check_arch("sm_90a")
        with self.assertRaisesRegex(CudaError, "for sm_80, GPU 1 is sm_90"):
            self.driver.check_arch("sm_80")

    def test_address_nobody_knows(self):
        self.cuda.failing["cuPointerGetAttribute"] = 1
        self.assertIsNone(self.driver.device_of(0x1000))


if __name__ == "__main__":
    unittest.main()
