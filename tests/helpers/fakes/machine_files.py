"""The files of a server from which controls are read, below a folder in place of the root."""

from __future__ import annotations

from pathlib import Path

CPUS = "sys/devices/system/cpu"
CLOCKS = f"{CPUS}/cpu0/cpufreq"
RAPL = "sys/class/powercap/intel-rapl:0"
SERVER = {
    f"{CPUS}/online": "0-3",
    f"{CPUS}/cpu0/topology/core_cpus_list": "0,2",
    f"{CPUS}/cpu1/topology/core_cpus_list": "1,3",
    f"{CPUS}/cpu2/topology/core_cpus_list": "0,2",
    f"{CPUS}/cpu3/topology/core_cpus_list": "1,3",
    f"{CPUS}/smt/control": "on",
    f"{CPUS}/intel_pstate/no_turbo": "0",
    f"{CLOCKS}/scaling_governor": "powersave",
    f"{CLOCKS}/scaling_available_governors": "performance powersave",
    f"{CLOCKS}/scaling_min_freq": "800000",
    f"{CLOCKS}/scaling_max_freq": "3500000",
    f"{CLOCKS}/cpuinfo_min_freq": "400000",
    f"{CLOCKS}/cpuinfo_max_freq": "3700000",
    **{
        f"{CPUS}/cpu1/cpufreq/{name}": text
        for name, text in (
            ("scaling_governor", "powersave"),
            ("scaling_min_freq", "800000"),
            ("scaling_max_freq", "3500000"),
            ("cpuinfo_min_freq", "400000"),
            ("cpuinfo_max_freq", "3700000"),
        )
    },
    f"{RAPL}/name": "package-0",
    f"{RAPL}/constraint_0_power_limit_uw": "205000000",
    f"{RAPL}/constraint_0_max_power_uw": "413000000",
    "sys/fs/resctrl/info/L3/cbm_mask": "7ff",
    "sys/fs/resctrl/info/L3/min_cbm_bits": "1",
    "sys/fs/resctrl/schemata": "    L3:0=7ff\n",
    "proc/cpuinfo": "processor : 0\nflags : fpu cat_l3\n",
    "proc/self/status": "Name:\tpython\nCapEff:\t000001ffffffffff\n",
}


def tree(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text, encoding="utf-8")
    return root
