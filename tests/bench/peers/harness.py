"""Times several providers of one operator against each other on one GPU: CUDA graphs over buffers that are not in the
L2, short bursts with rests, in turn. Needs torch with a GPU."""

import collections
import math
import time

import torch

import compare
import peer_rows
from provider import Failed, is_lost

REST_S = 0.1  # before every burst: the clock recovers within 100 ms after a burst below 10 ms
GRAPH_US, BURST_US = 2500.0, 10000.0
MAX_LAUNCHES, MAX_SETS = 1000, 256
L2_TIMES = 3  # bytes rotated, in units of the L2's size
QUICK_US, QUICK_REST_S = 1000.0, 0.01


class Captured:
    """A graph of launches over all buffer sets."""

    def __init__(self, graph, launches, sets, kept, us):
        self.graph, self.launches, self.sets, self.kept, self.us = graph, launches, sets, kept, us


def buffer_sets(bytes_of_set: int, l2_bytes: int) -> tuple:
    """(sets, whether rotating them leaves nothing in the L2)."""
    sets = max(2, math.ceil(L2_TIMES * l2_bytes / bytes_of_set))
    return min(sets, MAX_SETS), sets <= MAX_SETS


class Harness:
    def __init__(self, rounds=7, rest_s=REST_S, telemetry=None):
        self.rounds, self.rest_s, self.telemetry = rounds, rest_s, telemetry
        self.stream = torch.cuda.Stream()
        self.l2_bytes = torch.cuda.get_device_properties(0).L2_cache_size
        self._flush = None

    def method(self) -> dict:
        return {
            "rest_ms": self.rest_s * 1e3,
            "burst_us": BURST_US,
            "graph_us": GRAPH_US,
            "rounds": self.rounds,
            "l2_bytes": self.l2_bytes,
            "rotated_l2s": L2_TIMES,
        }

    def flush(self):
        """Reads more than the L2 holds; leaves no dirty lines."""
        if self._flush is None:
            self._flush = torch.zeros(L2_TIMES * self.l2_bytes // 4, dtype=torch.float32, device="cuda")
        return self._flush.sum()

    def _record(self, calls, launches):
        graph, kept = torch.cuda.CUDAGraph(), collections.deque(maxlen=len(calls))
        torch.cuda.synchronize()
        with torch.cuda.stream(self.stream):
            graph.capture_begin(capture_error_mode="thread_local")
            try:
                for index in range(launches):
                    kept.append(calls[index % len(calls)]())
            finally:
                graph.capture_end()
        torch.cuda.synchronize()
        return graph, kept

    def _replays_us(self, graph, launches, untimed=0, timed=1, cold_flush=False) -> list:
        """Microseconds a launch of each timed replay. All are queued before anybody waits: what the host needs to begin
        one passes while the device is busy with the one before."""
        events = []
        for _ in range(untimed + timed):
            if cold_flush:
                self.flush()
            start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            start.record()
            graph.replay()
            end.record()
            events.append((start, end))
        end.synchronize()
        return [start.elapsed_time(end) * 1e3 / launches for start, end in events[untimed:]]

    def capture(self, calls, bytes_of_set, rotates, target_us=GRAPH_US) -> Captured:
        """A graph of about `target_us`. Without `rotates` each set is launched once a graph, and whoever replays it
        flushes the L2 before."""
        sets = len(calls)
        with torch.cuda.stream(self.stream):
            calls[0]()  # what is compiled, loaded or allocated at the first call
            torch.cuda.synchronize()
        # A set larger than the L2 evicts itself; then a few launches of a slow kernel are enough.
        must_rotate = bytes_of_set < L2_TIMES * self.l2_bytes
        first = sets if must_rotate else 1
        graph, kept = self._record(calls, first)
        with torch.cuda.stream(self.stream):
            (us,) = self._replays_us(graph, first, untimed=1)
        launches = first
        if rotates:
            launches = peer_rows.launches_of_graph(us, sets, target_us, must_rotate, MAX_LAUNCHES)
        if launches != first:
            del graph, kept
            graph, kept = self._record(calls, launches)
            with torch.cuda.stream(self.stream):
                (us,) = self._replays_us(graph, launches)
        return Captured(graph, launches, sets, kept, us)

    def outputs_after_replay(self, captured, own_outputs):
        """Outputs of set 0 after all were poisoned and the graph ran: what is timed is what is checked."""
        # kept holds the last launches; set 0 is the last one whose number is a multiple of the sets.
        last = (captured.launches - 1) // captured.sets * captured.sets
        kept = captured.kept[last - captured.launches]
        outputs = list(own_outputs) if kept is None else (list(kept) if isinstance(kept, (tuple, list)) else [kept])
        with torch.cuda.stream(self.stream):
            for tensor in outputs:
                compare.poison(tensor)
            captured.graph.replay()
        torch.cuda.synchronize()
        return outputs, kept is None

    @staticmethod
    def scratch_of(call, output_bytes: int) -> int:
        """Peak of torch's allocator over one call beyond its outputs, in bytes."""
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        kept = call()
        torch.cuda.synchronize()
        peak = torch.cuda.max_memory_allocated() - before
        return max(0, peak - (output_bytes if kept is not None else 0))

    def quick_us(self, calls, bytes_of_set, rotates) -> float:
        """The better of two short replays: enough to choose between configurations of one provider."""
        captured = self.capture(calls, bytes_of_set, rotates, QUICK_US)
        time.sleep(QUICK_REST_S)
        with torch.cuda.stream(self.stream):
            self.flush()
            return min(self._replays_us(captured.graph, captured.launches, 1, 2, not rotates))

    def tune(self, candidates, bytes_of_set, rotates):
        """(configuration, calls) of the fastest of (configuration, function that makes its calls); those that fail are
        left out. Failed if all do."""
        best, last_error = None, "no configurations"
        for config, make_calls in candidates:
            try:
                calls = make_calls()
                us = self.quick_us(calls, bytes_of_set, rotates)
            except Exception as error:  # noqa: BLE001 -- compilers and drivers raise what they like
                if is_lost(error):
                    raise
                last_error = f"{type(error).__name__}: {error}"
                continue
            if best is None or us < best[0]:
                best = (us, config, calls)
        if best is None:
            raise Failed(last_error[:300])
        return best[1], best[2]

    def race(self, entries: dict, rotates: bool) -> dict:
        """Samples in microseconds a launch, by name: {name: Captured} burst by burst in turn."""
        samples = {name: [] for name in entries}
        for order in peer_rows.rounds(entries, self.rounds):
            for name in order:
                time.sleep(self.rest_s)
                captured = entries[name]
                untimed, timed = peer_rows.replays_of_burst(captured.us * captured.launches, BURST_US)
                with torch.cuda.stream(self.stream):
                    self.flush()  # what others left of these buffers would serve a kernel that streams past the L2
                    samples[name] += self._replays_us(captured.graph, captured.launches, untimed, timed, not rotates)
                if self.telemetry:
                    self.telemetry.read()
        return samples


class Telemetry:
    """What NVML says after each burst (up to 100 ms old: it explains times, it does not judge them)."""

    def __init__(self):
        self._handle, self._reads = None, []
        try:
            import pynvml

            pynvml.nvmlInit()
            # By UUID: NVML counts the machine's cards, PyTorch those that CUDA_VISIBLE_DEVICES shows.
            uuid = f"GPU-{torch.cuda.get_device_properties(0).uuid}"
            self._nvml, self._handle = pynvml, pynvml.nvmlDeviceGetHandleByUUID(uuid)
        except Exception:  # noqa: BLE001 -- no NVML: the row says nothing of clocks
            self._nvml = None

    def read(self):
        if self._handle is None:
            return
        nvml, handle = self._nvml, self._handle
        self._reads.append(
            (
                nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM),
                nvml.nvmlDeviceGetPowerUsage(handle) / 1e3,
                nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU),
                nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle),
            )
        )

    def take(self) -> dict:
        reads, self._reads = self._reads, []
        if not reads:
            return {}
        reasons = 0
        for read in reads:
            reasons |= read[3]
        clocks = [r[0] for r in reads]
        return {
            "sm_mhz": [min(clocks), peer_rows.median(clocks), max(clocks)],
            "power_w": peer_rows.rounded(max(r[1] for r in reads)),
            "temperature_c": max(r[2] for r in reads),
            "throttle_reasons": reasons,
        }

    def device(self) -> tuple:
        """(name, card, driver): the card as a digest of its UUID, enough to tell cards apart."""
        import hashlib

        name = torch.cuda.get_device_name(0)
        if self._handle is None:
            return name, "", ""
        text = lambda v: v.decode() if isinstance(v, bytes) else v
        uuid = text(self._nvml.nvmlDeviceGetUUID(self._handle))
        return name, hashlib.sha256(uuid.encode()).hexdigest()[:8], text(self._nvml.nvmlSystemGetDriverVersion())
