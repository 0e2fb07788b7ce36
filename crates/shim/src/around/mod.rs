//! What is put around the NIC: faults, checks, and a trace of what passes.
//!
//! | file | what |
//! | --- | --- |
//! | `trace` | a line for each request, completion and change |
//! | `faults` | what faults need of the process |

pub(crate) mod faults;
mod trace;

use std::sync::Arc;

use nic_soft::SoftNic;
use verbs::decorate::{FaultPlan, Faulty, Traced};
use verbs::nic::Nic;

use crate::around::faults::Process;
use crate::around::trace::Trace;
use crate::check;
use crate::process::settings;

/// The NIC as the program gets it.
pub(crate) struct Around {
    pub(crate) nic: Arc<dyn Nic>,
    /// The NIC itself, for memory that lies in files: where nothing in between has to know of the program's memory.
    pub(crate) soft: Option<Arc<SoftNic>>,
    /// What checks know of the context.
    pub(crate) check: Option<Arc<check::State>>,
    /// What goes wrong on purpose.
    pub(crate) faults: Option<FaultPlan>,
}

/// Puts around the NIC what was asked for. Errors are sentences.
pub(crate) fn around(soft: Arc<SoftNic>) -> Result<Around, String> {
    let mut nic: Arc<dyn Nic> = Arc::<SoftNic>::clone(&soft);
    let mut soft = Some(soft);
    let faults = settings::faults()?;
    if let Some(plan) = &faults {
        soft = None;
        let process = Process::new(&*nic);
        let process = process.map_err(|error| format!("faults around the NIC: {error}"))?;
        let faulty = Faulty::within(nic, plan.clone(), Box::new(process));
        nic = Arc::new(faulty.map_err(|error| format!("faults around the NIC: {error}"))?);
    }
    let mut check = None;
    if let Some(settings) = settings::check()? {
        let (checked, state) = check::around(nic, &settings)?;
        (nic, check) = (checked, Some(state));
    }
    if let Some(path) = settings::trace() {
        let trace = Trace::to(&path);
        let trace = trace.map_err(|error| format!("trace in {}: {error}", path.display()))?;
        nic = Arc::new(Traced::new(nic, trace));
    }
    Ok(Around {
        nic,
        soft,
        check,
        faults,
    })
}
