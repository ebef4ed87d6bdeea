"""The machine under the benchmark: which cores are used, what else runs on them, how fast they are."""
import os
import platform
import socket
import statistics
import threading
import time

import numpy as np

TICKS = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")


def cores(count):
    """The first `count` cores this process may use."""
    allowed = sorted(os.sched_getaffinity(0))
    if len(allowed) < count:
        raise SystemExit(f"the benchmark needs {count} cores; this process may use {len(allowed)}")
    return allowed[:count]


def _core_times(chosen):
    """(busy, stolen) seconds of the chosen cores since boot."""
    names = {f"cpu{core}" for core in chosen}
    busy = stolen = 0
    with open("/proc/stat") as table:
        for line in table:
            name, *fields = line.split()
            if name in names:
                user, nice, system, _, _, irq, softirq, steal = map(int, fields[:8])
                busy += user + nice + system + irq + softirq
                stolen += steal
    return busy / TICKS, stolen / TICKS


class Watch:
    """Samples one process group: its CPU time beside that of the cores it is pinned to, and its resident memory."""

    INTERVAL = 0.2

    def __init__(self, group, chosen):
        self._group, self._cores = group, chosen
        self._used = {}     # pid -> CPU seconds, kept after its end
        self._samples = []  # (time, busy, stolen, own)
        self.peak_rss = 0
        self._stop = threading.Event()
        self._sample()
        self._thread = threading.Thread(target=self._loop, daemon=True)
        self._thread.start()

    def _loop(self):
        while not self._stop.wait(self.INTERVAL):
            self._sample()

    def _sample(self):
        resident = 0
        for pid in os.listdir("/proc"):
            if not pid.isdigit():
                continue
            try:
                with open(f"/proc/{pid}/stat") as file:
                    fields = file.read().rsplit(")", 1)[1].split()
            except OSError:
                continue  # it has ended
            if int(fields[2]) == self._group:
                self._used[pid] = (int(fields[11]) + int(fields[12])) / TICKS
                resident += int(fields[21]) * PAGE
        self.peak_rss = max(self.peak_rss, resident)
        self._samples.append((time.time(), *_core_times(self._cores), sum(self._used.values())))

    def stop(self):
        self._stop.set()
        self._thread.join()
        self._sample()

    def foreign_share(self, begin=None, end=None):
        """(share of others, share stolen by the hypervisor) of the cores' time between two times of time.time()."""
        times = [sample[0] for sample in self._samples]
        begin = max(times[0], begin if begin is not None else times[0])
        end = min(times[-1], end if end is not None else times[-1])
        if end <= begin:
            return 0.0, 0.0
        used = []
        for column in (1, 2, 3):
            values = [sample[column] for sample in self._samples]
            used.append(np.interp(end, times, values) - np.interp(begin, times, values))
        busy, stolen, own = used
        available = (end - begin) * len(self._cores)
        return float(max(0.0, busy - own) / available), float(stolen / available)


def _loopback_microseconds():
    """Median of half a round trip of 4 bytes between two threads over loopback TCP."""
    server = socket.create_server(("127.0.0.1", 0))

    def echo():
        peer, _ = server.accept()
        with peer:
            peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            while data := peer.recv(4):
                peer.sendall(data)

    thread = threading.Thread(target=echo)
    thread.start()
    times = []
    with socket.create_connection(server.getsockname()) as client:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for _ in range(500):
            start = time.perf_counter()
            client.sendall(b"ping")
            client.recv(4)
            times.append(time.perf_counter() - start)
    thread.join()
    server.close()
    return 1e6 * statistics.median(times) / 2


def _copy_gigabytes_per_second(size):
    source, target = np.ones(size, np.uint8), np.zeros(size, np.uint8)
    best = min(_timed(np.copyto, target, source) for _ in range(7))
    return 2 * size / best / 1e9


def _timed(function, *arguments):
    start = time.perf_counter()
    function(*arguments)
    return time.perf_counter() - start


def _cpu_name():
    with open("/proc/cpuinfo") as table:
        for line in table:
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.machine()


def probe(chosen):
    """What stands at the head of every result: ratios travel between machines badly, and these numbers say why."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, chosen)
    try:
        return {
            "cpu": _cpu_name(),
            "cores_used": len(chosen),
            "cores_online": os.cpu_count(),
            "kernel": platform.release(),
            "copy_4MB_GB_per_s": round(_copy_gigabytes_per_second(4 << 20), 1),
            "copy_256MB_GB_per_s": round(_copy_gigabytes_per_second(256 << 20), 1),
            "loopback_one_way_us": round(_loopback_microseconds(), 1),
        }
    finally:
        os.sched_setaffinity(0, before)
