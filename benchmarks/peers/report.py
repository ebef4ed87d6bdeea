"""From the runs of run.py to medians, the check of the losses, ratios and the bars."""
import math
import statistics

from workloads import WORKLOADS

ROUNDS_FOR_A_BAR = 5
MIRRORED_REFERENCES = ("torch_ddp", "torch_ddp_tuned", "tf_mirrored_loop", "tf_mirrored_fit")
TUTTI_FASTEST = ("tutti_loop", "tutti_nnmodule")
TUTTI_WORKERS = ("tutti_workers_loop", "tutti_workers_nnmodule")
TUTTI_FIT = ("tutti_fit", "tutti_loop", "tutti_nnmodule")

# (title, contenders of Tutti in order of preference, peers of which the fastest counts, {workload: ratio})
SPEED_BARS = (
    ("DDP, the better of plain and tuned", TUTTI_FASTEST, ("torch_ddp", "torch_ddp_tuned"),
     {"C1": 2.4, "C2": 2.0, "C3": 1.25, "C5": 1.25}),
    ("one PyTorch process, doubled batch", TUTTI_FASTEST, ("torch_single",),
     {"C1": 1.0, "C2": 0.9, "C3": 1.1, "C5": 1.0}),
    ("TensorFlow Mirrored fit", TUTTI_FIT, ("tf_mirrored_fit",), {"C1": 6.0, "C2": 6.0, "C3": 3.5, "C5": 2.0}),
    ("TensorFlow's best compiled loop", TUTTI_FASTEST, ("tf_mirrored_loop",),
     {"C1": 1.8, "C2": 2.2, "C3": 1.5, "C5": 1.1}),
    ("DDP, the better of plain and tuned", TUTTI_WORKERS, ("torch_ddp", "torch_ddp_tuned"),
     {"C1w": 2.2, "C2w": 1.8, "C3w": 1.2, "C5w": 1.2}),
    ("TensorFlow MultiWorkerMirrored, compiled loop", TUTTI_WORKERS, ("tf_workers_loop",),
     {"C1w": 1.3, "C2w": 1.3, "C3w": 1.3, "C5w": 1.3}),
)
# An all-reduce between two processes: the peer's median over that of Tutti's tensors in a shared arena
ALL_REDUCE_BARS = (
    ("c10d_gloo", {4096: 100.0, 1 << 20: 8.0, 64 << 20: 4.0}),
    ("open_mpi", {size: 1.3 for size in (4096, 16384, 65536, 262144, 1 << 20, 4 << 20, 16 << 20, 64 << 20)}),
)
# Input pipelines: speed over tf.data's
DATA_BARS = {"data_slices": 2.0, "data_main": 1.0, "data_tfrecord": 1.0, "data_parallel_map": 1.0, "data_jpeg": 1.0}
DATA_TITLES = {
    "data_slices": "slices in batches of 128",
    "data_main": "the main job's pipeline: slices, map, batches of 128",
    "data_tfrecord": "100 MB of TFRecords of 10 kB",
    "data_parallel_map": "map with AUTOTUNE calls over 64 kB vectors, batches of 32",
    "data_jpeg": "JPEG decoding, 256x256, AUTOTUNE calls",
}
COMPARABLE = ("ok", "by design")  # verdicts on a loss
FIT_TO_LOOP = 0.95       # fit within 5 % of the hand-written loop
MAIN_SHARE = 0.5         # of TensorFlow's wall time and memory
MAIN_ACCURACY = 0.84     # after one epoch, below which a run of the main job has not done the job


def workload_of(work):
    """C1w is C1 on two processes."""
    return WORKLOADS[work.removesuffix("w")]


class Summary:
    """The kept runs of one contender on one workload."""

    def __init__(self, runs):
        self.contender = runs[0]["contender"]
        quiet = [run for run in runs if not run["disturbed"]]
        self.disturbed = not quiet  # every round was: its medians are shown, but meet no bar
        self.runs = quiet or runs
        self.rounds = len(self.runs)

    def median(self, field):
        values = self.values(field)
        return statistics.median(values) if values else None

    def values(self, field):
        return [run[field] for run in self.runs if run.get(field) is not None]


def loss_verdict(name, summary, reference):
    """"ok", "by design" (not comparable) or what is wrong."""
    last = summary.median("loss_last")
    if last is None or not math.isfinite(last):
        return "not finite"
    if name.startswith("C3") and summary.contender == "torch_single":
        return "by design"  # batch normalisation over the doubled batch
    if reference is None or reference is summary:
        return "ok"
    expected = reference.median("loss_last")
    relative = abs(last - expected) / max(abs(expected), 1e-12)
    return "ok" if relative <= workload_of(name).tolerance else f"off by {relative:.1e}"


class WorkResult:
    """One workload of the table: summaries by contender, losses checked, bars judged."""

    def __init__(self, name, runs):
        by_contender = {}
        for run in runs:
            by_contender.setdefault(run["contender"], []).append(run)
        self.name = name
        self.summaries = {contender: Summary(kept) for contender, kept in by_contender.items()}
        reference = next((self.summaries[c] for c in MIRRORED_REFERENCES if c in self.summaries), None)
        if name == "main":
            self.losses = {c: "ok" if s.median("accuracy") >= MAIN_ACCURACY else f"accuracy below {MAIN_ACCURACY}"
                           for c, s in self.summaries.items()}
        else:
            self.losses = {c: loss_verdict(name, s, reference) for c, s in self.summaries.items()}
        self.bars = self._main_bars() if name == "main" else self._speed_bars()

    def _first(self, contenders):
        return next((self.summaries[c] for c in contenders if c in self.summaries), None)

    def _bar(self, title, ours, peer, ratio, bar, at_most=False):
        met = ratio <= bar if at_most else ratio >= bar
        reasons = [f"loss of {s.contender} {self.losses[s.contender]}" for s in (ours, peer)
                   if self.losses[s.contender] not in COMPARABLE]
        verdict = "no: " + "; ".join(reasons) if reasons else "yes" if met else "no"
        doubts = [f"{s.contender} disturbed" for s in (ours, peer) if s.disturbed]
        rounds = min(ours.rounds, peer.rounds)
        if rounds < ROUNDS_FOR_A_BAR:
            doubts.append(f"{rounds} rounds only")
        if doubts and verdict == "yes":
            verdict = "not yet: " + ", ".join(doubts)
        return {"workload": self.name, "against": title, "tutti": ours.contender, "peer": peer.contender,
                "ratio": ratio, "bar": bar, "at_most": at_most, "verdict": verdict, "doubts": doubts}

    def _speed_bars(self):
        result = []
        for title, ours_names, peer_names, bars in SPEED_BARS:
            ours = self._first(ours_names)
            peers = [self.summaries[c] for c in peer_names if c in self.summaries]
            peers = [p for p in peers if self.losses[p.contender] in COMPARABLE] or peers
            if ours and peers and self.name in bars:
                peer = max(peers, key=lambda s: s.median("samples_per_s"))
                ratio = ours.median("samples_per_s") / peer.median("samples_per_s")
                result.append(self._bar(title, ours, peer, ratio, bars[self.name]))
        fit, loop = self.summaries.get("tutti_fit"), self.summaries.get("tutti_loop")
        if fit and loop:
            ratio = fit.median("samples_per_s") / loop.median("samples_per_s")
            result.append(self._bar("Tutti's own loop (its fit)", fit, loop, ratio, FIT_TO_LOOP))
        return result

    def _main_bars(self):
        ours, peer = self.summaries.get("tutti_e2e"), self.summaries.get("tf_mirrored_e2e")
        if not ours or not peer:
            return []
        return [self._bar(f"TensorFlow Mirrored fit, {what}", ours, peer, ours.median(field) / peer.median(field),
                          MAIN_SHARE, at_most=True)
                for what, field in (("wall time", "process_s"), ("peak memory", "peak_rss_mb"))]

    def as_json(self):
        fields = ("process_s", "peak_rss_mb", "accuracy") if self.name == "main" else ("samples_per_s", "step_us", "loss_first",
                                                                                        "loss_last")
        return {"contenders": {c: {**{field: s.median(field) for field in fields}, "rounds": s.rounds, "disturbed": s.disturbed,
                                   "loss": self.losses[c]} for c, s in self.summaries.items()},
                "bars": self.bars}


class DataResult(WorkResult):
    """One input pipeline; its check sum stands for the loss."""

    def __init__(self, name, runs):
        by_contender = {}
        for run in runs:
            by_contender.setdefault(run["contender"], []).append(run)
        self.name = name
        self.summaries = {contender: Summary(kept) for contender, kept in by_contender.items()}
        ours, peer = self.summaries.get("tutti_data"), self.summaries.get("tf_data")
        self.losses = {c: self._check(s, peer or s) for c, s in self.summaries.items()}
        self.bars = []
        if ours and peer:
            ratio = ours.median("samples_per_s") / peer.median("samples_per_s")
            self.bars.append(self._bar("tf.data", ours, peer, ratio, DATA_BARS[name]))

    @staticmethod
    def _check(summary, reference):
        sum_of, expected = summary.median("check"), reference.median("check")
        return "ok" if abs(sum_of - expected) <= 1e-5 * max(1, abs(expected)) else f"check sum {sum_of}, not {expected}"

    def as_json(self):
        fields = ("samples_per_s", "check", "peak_rss_mb")
        return {"contenders": {c: {**{field: s.median(field) for field in fields}, "rounds": s.rounds, "disturbed": s.disturbed,
                                   "loss": self.losses[c]} for c, s in self.summaries.items()},
                "bars": self.bars}


def _table(head, rows):
    widths = [max(len(row[i]) for row in [head, *rows]) for i in range(len(head))]
    lines = ["  ".join(cell.ljust(width) if i == 0 else cell.rjust(width) for i, (cell, width) in enumerate(zip(row, widths)))
             for row in [head, ["-" * width for width in widths], *rows]]
    return "\n".join("  " + line.rstrip() for line in lines)


def _number(value):
    if value is None:
        return "-"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def _span(summary, field):
    values = summary.values(field)
    return f"{_number(min(values))}..{_number(max(values))}" if values else "-"


def _mark(summary):
    return f"{summary.rounds}{'!' if summary.disturbed else ''}"


def print_work(result):
    if result.name == "main":
        print("\nmain: Fashion-MNIST CNN, 1 epoch, global batch 128, from start to end of the process")
        print(_table(["contender", "wall s", "lowest..highest", "peak RSS MB", "accuracy", "rounds"],
                     [[c, _number(s.median("process_s")), _span(s, "process_s"), _number(s.median("peak_rss_mb")),
                       f"{s.median('accuracy'):.4f}", _mark(s)] for c, s in result.summaries.items()]))
    elif result.name in DATA_TITLES:
        print(f"\n{result.name}: {DATA_TITLES[result.name]}")
        print(_table(["contender", "elements/s", "lowest..highest", "peak RSS MB", "check", "rounds"],
                     [[c, _number(s.median("samples_per_s")), _span(s, "samples_per_s"), _number(s.median("peak_rss_mb")),
                       result.losses[c], _mark(s)] for c, s in result.summaries.items()]))
    else:
        work = workload_of(result.name)
        where = ", two processes" if result.name.endswith("w") else ""
        print(f"\n{result.name}: {work.title}, {work.batch} samples a replica, {work.steps} steps a run{where}")
        fastest = sorted(result.summaries.items(), key=lambda item: -item[1].median("samples_per_s"))
        print(_table(["contender", "samples/s", "lowest..highest", "step us", "loss_last", "loss", "rounds"],
                     [[c, _number(s.median("samples_per_s")), _span(s, "samples_per_s"), _number(s.median("step_us")),
                       _number(s.median("loss_last")), result.losses[c], _mark(s)] for c, s in fastest]))


class AllReduceResult:
    """Microseconds of an all-reduce by size and contender: medians over the rounds of each round's median."""

    name = "all_reduce"
    summaries = {}

    def __init__(self, rows):
        of = {}
        for row in rows:
            of.setdefault((row["bytes"], row["contender"]), []).append(row["median_us"])
        self.medians = {key: statistics.median(values) for key, values in of.items()}
        self.rounds = min(len(values) for values in of.values())
        self.bars = [self._bar(peer, size, bar) for peer, bars in ALL_REDUCE_BARS for size, bar in bars.items()
                     if (size, peer) in self.medians and (size, "shm_arena") in self.medians]

    def _bar(self, peer, size, bar):
        ratio = self.medians[size, peer] / self.medians[size, "shm_arena"]
        verdict = "no" if ratio < bar else "yes" if self.rounds >= ROUNDS_FOR_A_BAR else f"not yet: {self.rounds} rounds only"
        return {"workload": "all_reduce", "against": f"{peer}, {size:,} bytes", "tutti": "shm_arena", "peer": peer,
                "ratio": ratio, "bar": bar, "at_most": False, "verdict": verdict, "doubts": []}

    def print(self):
        sizes = sorted({size for size, _ in self.medians})
        contenders = list(dict.fromkeys(contender for _, contender in self.medians))
        print(f"\nall_reduce: float32, SUM, two processes, microseconds, medians of {self.rounds} rounds")
        print(_table(["bytes", *contenders], [[f"{size:,}", *(_number(self.medians.get((size, c))) for c in contenders)]
                                              for size in sizes]))

    def as_json(self):
        return {"median_us": {contender: {str(size): value for (size, c), value in self.medians.items() if c == contender}
                              for contender in dict.fromkeys(c for _, c in self.medians)},
                "rounds": self.rounds, "bars": self.bars}


def print_bars(results):
    bars = [bar for result in results for bar in result.bars]
    if not bars:
        print("\nNo bar to judge: it takes Tutti and a peer on the same workload.")
        return
    print("\nTutti / peer, medians")
    print(_table(["workload against", "Tutti's", "peer", "ratio", "bar", "met"],
                 [[f"{bar['workload']} {bar['against']}", bar["tutti"], bar["peer"], f"{bar['ratio']:.2f}",
                   f"{'<=' if bar['at_most'] else '>='} {bar['bar']:g}", bar["verdict"]] for bar in bars]))
    if any(s.disturbed for result in results for s in result.summaries.values()):
        print("  ! every round of this contender was disturbed by other processes: measure again on a quiet machine")
