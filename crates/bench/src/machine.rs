//! What a measurement ran on.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use serde::{Deserialize, Serialize};

use crate::print::many;

/// The machine, as far as a reader of figures must know it.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Machine {
    /// The CPU's model, as the kernel names it.
    pub cpu: String,
    /// CPUs that this process may use.
    pub cpus: usize,
    /// The kernel's release.
    pub kernel: String,
}

impl Machine {
    /// This one. What the kernel does not tell is `unknown`.
    pub fn this() -> Self {
        let unknown = || "unknown".to_string();
        let cpu_info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let cpu = ["model name", "Model", "uarch"].iter().find_map(|name| {
            let mut lines = cpu_info.lines().filter_map(|line| line.split_once(':'));
            let (_, model) = lines.find(|(key, _)| key.trim() == *name)?;
            Some(model.trim().to_string())
        });
        let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease");
        Machine {
            cpu: cpu.unwrap_or_else(unknown),
            cpus: allowed_cpus().len().max(1),
            kernel: kernel.map_or_else(|_| unknown(), |text| text.trim().to_string()),
        }
    }
}

impl std::fmt::Display for Machine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (cpu, cpus, kernel) = (&self.cpu, many(self.cpus, "CPU"), &self.kernel);
        write!(f, "{cpu}, {cpus}, Linux {kernel}")
    }
}

/// The CPUs that this thread may use, in order; none when the kernel does not say.
pub fn allowed_cpus() -> Vec<usize> {
    match sched_getaffinity(None) {
        Ok(set) => (0..CpuSet::MAX_CPU)
            .filter(|&cpu| set.is_set(cpu))
            .collect(),
        Err(_) => Vec::new(),
    }
}

/// Binds this thread to a CPU; returns whether the kernel did.
pub fn pin(cpu: usize) -> bool {
    pin_to(&[cpu])
}

/// Binds this thread, and the processes that it starts, to some CPUs; returns whether the kernel
/// did.
pub fn pin_to(cpus: &[usize]) -> bool {
    if cpus.iter().any(|&cpu| cpu >= CpuSet::MAX_CPU) {
        return false;
    }
    let mut set = CpuSet::new();
    for &cpu in cpus {
        set.set(cpu);
    }
    sched_setaffinity(None, &set).is_ok()
}

/// The first and the last CPU that this process may use, if there are two.
pub fn first_and_last() -> Option<[usize; 2]> {
    let allowed = allowed_cpus();
    match (allowed.first(), allowed.last()) {
        (Some(one), Some(two)) if one != two => Some([*one, *two]),
        _ => None,
    }
}

/// Two different CPUs that this process may use: `0,1`.
///
/// # Errors
/// What is wrong with them.
pub fn two_cpus(text: &str) -> Result<[usize; 2], String> {
    let wrong = || format!("`{text}` is not two CPUs; write 0,1");
    let (one, two) = text.split_once(',').ok_or_else(wrong)?;
    let cpus = [one, two].map(|cpu| cpu.trim().parse());
    let [Ok(one), Ok(two)] = cpus else {
        return Err(wrong());
    };
    if one == two {
        return Err("the two CPUs are the same".into());
    }
    let allowed = allowed_cpus();
    match [one, two].iter().find(|cpu| !allowed.contains(cpu)) {
        Some(cpu) => Err(format!(
            "this process may use the CPUs {allowed:?}, not {cpu}"
        )),
        None => Ok([one, two]),
    }
}

/// How long this thread has been ready to run while others had its CPU, in nanoseconds; nothing when
/// the kernel does not tell.
pub fn waited_for_cpu_ns() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    text.split(' ').nth(1)?.parse().ok()
}

/// Which CPUs a server and its load have, so that neither takes the other's.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Placement {
    /// The server's, one a core.
    pub server: Vec<usize>,
    /// The load's.
    pub load: Vec<usize>,
}

impl Placement {
    /// The first CPUs for the server's cores, the others for the load; none for anybody when that
    /// leaves none for the load.
    pub fn split(cores: usize) -> Self {
        let mut server = allowed_cpus();
        if server.len() <= cores {
            return Placement::default();
        }
        let load = server.split_off(cores);
        Placement { server, load }
    }

    /// The load's first CPU and the server's.
    pub fn ends(&self) -> Option<[usize; 2]> {
        Some([*self.load.first()?, *self.server.first()?])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_has_a_cpu_that_a_thread_can_be_bound_to() {
        let machine = Machine::this();
        assert!(machine.cpus > 0 && !machine.kernel.is_empty() && !machine.cpu.is_empty());
        std::thread::spawn(|| {
            let cpu = *allowed_cpus().last().expect("a CPU");
            assert!(pin(cpu));
            assert_eq!(allowed_cpus(), [cpu]);
            assert!(!pin(usize::MAX));
        })
        .join()
        .expect("no panic");
    }
}
