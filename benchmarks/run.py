#!/usr/bin/env python3
"""Tutti beside its peers on the same work: what `./dev bench` starts.

    run.py [--peers] [--work C1,C2,C3,C5,main,workers,all_reduce,data,calls,optimizers] [--rounds 5] [--json FILE]

Every round runs each contender once, in alternating order, each in processes of its own, all pinned to the same two
cores with as many threads. Tables of medians and of the bars go to standard output, everything measured to the JSON file.
Without --peers only PyTorch stands beside Tutti; with it TensorFlow too, in a Python environment made on first use.
`--work workers` is C1w to C5w, the same workloads on two processes with one replica each, beside DDP and (with --peers)
TensorFlow's MultiWorkerMirroredStrategy; `--work all_reduce` an all-reduce between two processes in every way that Tutti has,
beside Gloo as PyTorch calls it, Open MPI where mpirun is found, and (with --peers) TensorFlow. Both on demand.
`--work data` is five input pipelines beside tf.data's (with --peers), on demand.
`--work calls` is a table of what single calls cost on 1, 2 and 4 replicas, beside nobody, and only on demand; so is
`--work optimizers`, each optimizer's update beside the same formula by PyTorch's operations, in one process.

Rules that keep the numbers honest:
- thread counts are set for every contender alike (OpenMP and BLAS): cores / processes a process;
- no barrier here spins: Gloo's own barrier sleeps, so its helper thread is never starved;
- a speed counts only if loss_last agrees with the others' (peers/workloads.py has the tolerances);
- a run during which others took more than 15 % of the cores (the hypervisor included) is repeated, at most twice; a
  contender that was disturbed in all rounds meets no bar;
- the probe at the head goes with every result: a slow wake-up or loopback flatters whoever does not need it.
"""
import argparse
import datetime
import json
import os
import platform
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PEERS = ROOT / "benchmarks" / "peers"
BINARIES = ROOT / "build" / "bench" / "bin"
sys.path.insert(0, str(PEERS))

import machine
import report
import workloads

CORES = 2
FOREIGN_LIMIT = 0.15
REPEATS = 2
TIMEOUT = 900  # seconds for one run
TENSORFLOW = "2.21.0"
TUTTI_MODES = {"C1": ("loop", "fit"), "C2": ("loop", "fit"), "C3": ("nnmodule",), "C5": ("loop", "fit")}
WORKS = (*workloads.WORKLOADS, "main")
DATA_WORKS = tuple(report.DATA_BARS)  # what `--work data` stands for
WORKERS_WORKS = tuple(f"{work}w" for work in TUTTI_MODES)  # what `--work workers` stands for
ALL_REDUCE = "all_reduce"
TABLES = {"calls": "call_costs", "optimizers": "optimizer_bench"}  # program that prints one, and a result line


class Contender:
    """A command to run: `processes` of it share the cores; `parse` makes the result line of its output."""

    def __init__(self, name, command, processes=1, parse=None):
        self.name, self.command, self.processes = name, [str(part) for part in command], processes
        self.parse = parse or last_json_line
        self.out = None  # why it takes no further part


class Failed(Exception):
    pass


def last_json_line(output):
    for line in reversed(output.splitlines()):
        if line.startswith("{"):
            return json.loads(line)
    raise Failed("printed no result line")


def tutti_e2e_line(output):
    found = re.search(r"Eval loss: (\S+), Eval accuracy: (\S+)", output)
    if not found:
        raise Failed("printed no \"Eval loss: …, Eval accuracy: …\"")
    return {"contender": "tutti_e2e", "workload": "main", "eval_loss": float(found[1]), "accuracy": float(found[2])}


# --- contenders --------------------------------------------------------------------------------

def tutti_binary(name):
    path = BINARIES / name
    if not path.is_file():
        raise SystemExit(f"run.py: {path.relative_to(ROOT)} is missing. Build it first: ./dev bench builds and then starts "
                         f"this script; by hand: cmake --preset bench && ninja -C build/bench {name}")
    return path


def contenders_for(work, tensorflow_python, data, options):
    """All that take part in `work`. `tensorflow_python` is None without --peers."""
    python = sys.executable
    of_work = ["--work", work.removesuffix("w"), "--steps-scale", options.steps_scale]
    if work in DATA_WORKS:
        of_data = ["--work", work, "--data", data / "pipelines", "--scale", options.steps_scale]
        result = [] if options.without_tutti else [Contender("tutti_data", [tutti_binary("data_bench"), *of_data])]
        if tensorflow_python:
            result.append(Contender("tf_data", [tensorflow_python, PEERS / "tf_data.py", *of_data]))
        return result
    if work == ALL_REDUCE:
        return all_reduce_contenders(tensorflow_python, options)
    if work in WORKERS_WORKS:
        return workers_contenders(work.removesuffix("w"), of_work, tensorflow_python, data, options)
    if work == "main":
        result = [
            Contender("torch_ddp_e2e", [python, PEERS / "torch_e2e.py", "--mode", "ddp"], processes=2),
            Contender("torch_single_e2e", [python, PEERS / "torch_e2e.py", "--mode", "single"]),
        ]
        if tensorflow_python:
            result.append(Contender("tf_mirrored_e2e", [tensorflow_python, PEERS / "tf_e2e.py"]))
        if not options.without_tutti:
            tutti = Contender("tutti_e2e", [tutti_binary("train_fashion_mnist"), "--epochs", 1], parse=tutti_e2e_line)
            result.insert(0, tutti)
        return result
    result = []
    if not options.without_tutti:
        for mode in TUTTI_MODES[work]:
            result.append(Contender(f"tutti_{mode}",
                                    [tutti_binary("train_bench"), "--work", work, "--data", data, "--mode", mode]))
    for mode, processes in (("ddp", 2), ("ddp_tuned", 2), ("single", 1)):
        result.append(Contender(f"torch_{mode}", [python, PEERS / "torch_ddp.py", "--mode", mode, *of_work],
                                processes=processes))
    if tensorflow_python:
        for mode in ("fit", "loop"):
            result.append(Contender(f"tf_mirrored_{mode}",
                                    [tensorflow_python, PEERS / "tf_mirrored.py", "--mode", mode, *of_work]))
    return result


def workers_contenders(work, of_work, tensorflow_python, data, options):
    result = []
    if not options.without_tutti:
        mode = TUTTI_MODES[work][0]
        result.append(Contender(f"tutti_workers_{mode}", [tutti_binary("train_bench"), "--work", work, "--data", data,
                                                          "--mode", mode, "--workers", 2], processes=2))
    for mode in ("ddp", "ddp_tuned"):
        result.append(Contender(f"torch_{mode}", [sys.executable, PEERS / "torch_ddp.py", "--mode", mode, *of_work], processes=2))
    if tensorflow_python:
        result.append(Contender("tf_workers_loop", [tensorflow_python, PEERS / "tf_workers.py", *of_work], processes=2))
    return result


def rows_of(output):
    """The lines of JSON of a program that has one for each size."""
    rows = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
    if not rows:
        raise Failed("printed no row")
    return {"workload": ALL_REDUCE, "rows": rows}


def all_reduce_contenders(tensorflow_python, options):
    """Tutti's ways and c10d's Gloo alternate in one program; the others have a program each."""
    seconds = 0.3 * options.steps_scale
    result = [Contender("all_reduce_bench", [tutti_binary("all_reduce_bench"), "--seconds", seconds], 2, rows_of)]
    if shutil.which("mpirun") and (BINARIES / "mpi_all_reduce").is_file():
        command = ["mpirun", "--allow-run-as-root", "--bind-to", "none", "-n", 2, BINARIES / "mpi_all_reduce", seconds]
        result.append(Contender("open_mpi", command, 2, rows_of))
    else:
        print("    Open MPI takes no part: apt-get install openmpi-bin libopenmpi-dev, then build again", flush=True)
    if tensorflow_python:
        command = [tensorflow_python, PEERS / "tf_all_reduce.py", "--seconds", seconds]
        result.append(Contender("tensorflow", command, 2, rows_of))
    return result


def peers_python():
    """The Python of .venv-peers, which is made and filled if need be."""
    folder = ROOT / ".venv-peers"
    python = folder / "bin" / "python"
    if not list(folder.glob(f"lib/python3*/site-packages/tensorflow_cpu-{TENSORFLOW}.dist-info")):
        print(f"==> Python environment .venv-peers with tensorflow-cpu=={TENSORFLOW} (a large download, once)", flush=True)
        start = time.monotonic()
        if not python.exists():
            subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        install = [python, "-m", "pip", "install", "--quiet", *shlex.split(os.environ.get("TUTTI_PIP_ARGS", "")),
                   f"tensorflow-cpu=={TENSORFLOW}"]
        if subprocess.run(install).returncode != 0:
            raise SystemExit("run.py: pip could not install TensorFlow; TUTTI_PIP_ARGS passes it further arguments")
        print(f"    {time.monotonic() - start:.0f} s", flush=True)
    return python


# --- one run -----------------------------------------------------------------------------------

def environment(contender):
    threads = str(CORES // contender.processes)
    return {**os.environ, "OMP_NUM_THREADS": threads, "OPENBLAS_NUM_THREADS": threads, "MKL_NUM_THREADS": threads,
            "CUDA_VISIBLE_DEVICES": "-1", "TF_CPP_MIN_LOG_LEVEL": "2", "TUTTI_LOG": "warning", "PYTHONWARNINGS": "ignore"}


def ending(code):
    return f"exit status {code}" if code >= 0 else f"ended by {signal.Signals(-code).name}"


def last_words(text):
    """The end of a program's stderr, without the lines that TensorFlow always writes."""
    lines = [line for line in text.strip().splitlines() if not re.match(r"[IW]\d{4} |WARNING: All log messages", line)]
    return " | ".join(lines[-3:]) or "no message"


def run_once(contender, cores):
    """The result line, with what the machine did meanwhile. Raises Failed."""
    with tempfile.TemporaryFile("w+") as errors:
        begin = time.time()
        # taskset, not preexec_fn: nothing of this process runs between fork and exec
        process = subprocess.Popen(["taskset", "-c", ",".join(map(str, cores)), *contender.command],
                                   stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors, text=True,
                                   env=environment(contender), start_new_session=True)
        watch = machine.Watch(process.pid, cores)
        timer = threading.Timer(TIMEOUT, os.killpg, (process.pid, signal.SIGKILL))
        timer.start()
        try:
            output, line_at = [], None
            for line in process.stdout:
                output.append(line)
                if line.startswith("{"):
                    line_at = time.time()
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            raise
        finally:
            timer.cancel()
            watch.stop()
        end = time.time()
        errors.seek(0)
        if process.returncode != 0:
            raise Failed(f"{ending(process.returncode)}: {last_words(errors.read())}")
    result = contender.parse("".join(output))
    if line_at and "seconds" not in result and "samples_per_s" in result:
        work = workloads.WORKLOADS[result["workload"]]
        result["seconds"] = work.steps * work.batch * workloads.REPLICAS / result["samples_per_s"]
    # Judge the timed part: it ends where the line was printed. The main job is timed whole; so is what is too short for
    # the kernel's clock ticks.
    timed = line_at is not None and result.get("seconds", 0) >= 1
    foreign, stolen = watch.foreign_share(line_at - result["seconds"], line_at) if timed else watch.foreign_share()
    peak = max(watch.peak_rss, usage.ru_maxrss * 1024)
    result.update(contender=contender.name, process_s=round(end - begin, 3), foreign=round(foreign, 3), stolen=round(stolen, 3),
                  peak_rss_mb=round(peak / 2**20, 1), cpu_s=round(usage.ru_utime + usage.ru_stime, 2),
                  disturbed=foreign + stolen > FOREIGN_LIMIT)
    return result


def run_quietly(contender, cores, say):
    """Runs until nothing disturbs it, three times at most; the last result says whether it was disturbed."""
    for attempt in range(1 + REPEATS):
        result = run_once(contender, cores)
        result["attempt"] = attempt + 1
        if not result["disturbed"]:
            break
        share = result["foreign"] + result["stolen"]
        last = attempt == REPEATS
        say(f"{contender.name}: others had {share:.0%} of the cores; {'refused, given up' if last else 'again'}")
    return result


def print_table_of(work, cores):
    """Prints what the program of a table says; its result. Raises Failed."""
    def parse(output):
        table = [line for line in output.splitlines() if line.startswith("|")]
        return {**last_json_line(output), "table": table}
    say = lambda text: print(f"    {work} {text}", flush=True)
    print(f"==> {work}", flush=True)
    result = run_quietly(Contender(f"tutti_{work}", [tutti_binary(TABLES[work])], parse=parse), cores, say)
    print("\n".join(result["table"]))
    return result


# --- all rounds --------------------------------------------------------------------------------

def figure(result):
    if result["workload"] == ALL_REDUCE:
        return f"{len(result['rows'])} rows"
    if result["workload"] == "main":
        return f"{result['process_s']:.1f} s, accuracy {result['accuracy']:.4f}"
    return f"{result['samples_per_s']:,.0f} samples/s"


def measure(work, contenders, rounds, cores):
    """All runs of one workload."""
    runs = []
    for number in range(rounds):
        order = [c for c in (contenders if number % 2 == 0 else reversed(contenders)) if c.out is None]
        for contender in order:
            say = lambda text: print(f"    {work} round {number + 1}/{rounds} {text}", flush=True)
            try:
                result = run_quietly(contender, cores, say)
            except Failed as reason:
                contender.out = str(reason)
                say(f"{contender.name}: takes no further part: {reason}")
                continue
            result["round"] = number + 1
            runs.append(result)
            say(f"{contender.name}: {figure(result)}")
    return runs


def result_of(work, runs):
    if work == ALL_REDUCE:
        return report.AllReduceResult([row for run in runs for row in run["rows"]])
    return (report.DataResult if work in DATA_WORKS else report.WorkResult)(work, runs)


def parse_arguments():
    parser = argparse.ArgumentParser(prog="./dev bench", description="Benchmarks of Tutti beside its peers")
    parser.add_argument("--peers", action="store_true", help="TensorFlow too, in .venv-peers (made on first use)")
    parser.add_argument("--work", default=",".join(WORKS), help="what to run, comma-separated (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=report.ROUNDS_FOR_A_BAR, help="default: %(default)s, what a bar needs")
    parser.add_argument("--json", default=str(ROOT / "build/bench/bench.json"), help="file for all that was measured")
    parser.add_argument("--without-tutti", action="store_true", help="the peers alone")
    parser.add_argument("--steps-scale", type=float, default=0.02 if workloads.SMOKE else 1.0,
                        help="factor on the numbers of steps, to try the benchmark")
    options = parser.parse_args()
    options.work = options.work.split(",")
    groups = {"data": DATA_WORKS, "workers": WORKERS_WORKS}
    known = (*WORKS, *groups, *DATA_WORKS, *WORKERS_WORKS, ALL_REDUCE, *TABLES)
    for name in options.work:
        if name not in known:
            parser.error(f"unknown work {name!r}; known: {', '.join(known)}")
    options.work = [one for name in options.work for one in groups.get(name, (name,))]
    if options.rounds < 1:
        parser.error("--rounds needs at least 1")
    return options


def main():
    options = parse_arguments()
    cores = machine.cores(CORES)
    data = ROOT / "build/bench/data"
    plan = {}
    tensorflow_python = peers_python() if options.peers else None
    for work in (name for name in options.work if name not in TABLES):
        plan[work] = contenders_for(work, tensorflow_python, data, options)
    if plan:
        workloads.scale_steps(options.steps_scale)
        if any(work not in DATA_WORKS for work in plan):
            workloads.dump(data)
        if any(work in DATA_WORKS for work in plan):
            subprocess.run([tutti_binary("data_bench"), "--prepare", "--data", data / "pipelines", "--scale",
                            str(options.steps_scale)], check=True)
    about = {"date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
             "python": platform.python_version(), "steps_scale": options.steps_scale, **machine.probe(cores)}
    print("machine: " + ", ".join(f"{key} {value}" for key, value in about.items()))
    if options.steps_scale < 1:
        print("steps are scaled down: no figure below means anything")
    results, runs = [], {}
    for work, contenders in plan.items():
        print(f"==> {work}: {', '.join(c.name for c in contenders)}", flush=True)
        runs[work] = measure(work, contenders, options.rounds, cores)
        if runs[work]:
            results.append(result_of(work, runs[work]))
    for result in results:
        result.print() if result.name == ALL_REDUCE else report.print_work(result)
    if results:
        report.print_bars(results)
    left_out = {f"{work} {c.name}": c.out for work, contenders in plan.items() for c in contenders if c.out}
    for work in (name for name in options.work if name in TABLES):
        try:
            runs[work] = [print_table_of(work, cores)]
        except Failed as reason:
            left_out[work] = str(reason)
    for name, reason in left_out.items():
        print(f"  left out: {name}: {reason}")
    document = {"machine": about, "rounds": options.rounds, "results": {r.name: r.as_json() for r in results},
                "left_out": left_out, "runs": runs}
    Path(options.json).parent.mkdir(parents=True, exist_ok=True)
    Path(options.json).write_text(json.dumps(document, indent=1) + "\n")
    print(f"\nall runs: {options.json}")
    return 1 if left_out else 0


if __name__ == "__main__":
    sys.exit(main())
