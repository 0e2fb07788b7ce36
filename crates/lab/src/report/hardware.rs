//! The machine, as far as its figures depend on it.

use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};

use bench::machine::Machine;
use bench::print::many;

/// What a report says of the machine. What the kernel does not tell is left out.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Hardware {
    /// What every measurement says of it.
    #[serde(flatten)]
    pub machine: Machine,
    /// The caches of the first CPU, nearest first.
    pub caches: Vec<CpuCache>,
    /// Bytes of memory.
    pub memory_bytes: Option<u64>,
    /// How the kernel chooses the clock rate.
    pub governor: Option<String>,
    /// Whether this is a virtual machine, as far as the CPU says so.
    pub is_virtual: bool,
}

/// A cache.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct CpuCache {
    /// 1 is the nearest.
    pub level: u8,
    /// `Data`, `Instruction` or `Unified`.
    pub holds: String,
    /// Its size.
    pub bytes: u64,
}

impl Hardware {
    /// This machine.
    pub fn this() -> Self {
        let system = Path::new("/sys/devices/system/cpu/cpu0");
        let cpu_info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let flags = cpu_info.lines().find(|line| line.starts_with("flags"));
        Hardware {
            machine: Machine::this(),
            caches: caches(&system.join("cache")),
            memory_bytes: fs::read_to_string("/proc/meminfo")
                .ok()
                .and_then(|text| memory(&text)),
            governor: word(&system.join("cpufreq/scaling_governor")),
            is_virtual: flags
                .is_some_and(|line| line.split_whitespace().any(|flag| flag == "hypervisor")),
        }
    }

    /// One line: the CPU, how many, the kernel.
    pub fn line(&self) -> String {
        let kind = if self.is_virtual { ", virtual" } else { "" };
        let Machine { cpu, cpus, kernel } = &self.machine;
        format!("{cpu}, {}{kind}, Linux {kernel}", many(*cpus, "CPU"))
    }
}

fn word(path: &Path) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let text = text.trim();
    (!text.is_empty()).then(|| text.to_string())
}

fn caches(folder: &Path) -> Vec<CpuCache> {
    let cache = |number: usize| {
        let folder = folder.join(format!("index{number}"));
        Some(CpuCache {
            level: word(&folder.join("level"))?.parse().ok()?,
            holds: word(&folder.join("type"))?,
            bytes: size(&word(&folder.join("size"))?)?,
        })
    };
    (0..8).map_while(cache).collect()
}

/// `48K` in bytes.
fn size(text: &str) -> Option<u64> {
    let (number, shift) = match text.strip_suffix('K') {
        Some(number) => (number, 10),
        None => match text.strip_suffix('M') {
            Some(number) => (number, 20),
            None => (text, 0),
        },
    };
    number.parse::<u64>().ok()?.checked_mul(1 << shift)
}

/// The memory in `/proc/meminfo`.
fn memory(text: &str) -> Option<u64> {
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}
