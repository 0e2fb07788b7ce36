//! What is put around the NIC: faults, checks, and a trace of what passes.

use std::sync::Arc;

use nic_soft::SoftNic;
use verbs::decorate::{Faulty, Traced};
use verbs::nic::Nic;

use crate::check;
use crate::settings;
use crate::trace::Trace;

/// The NIC as the program gets it.
pub(crate) struct Around {
    pub(crate) nic: Arc<dyn Nic>,
    /// The NIC itself, for memory that lies in files: where nothing in between has to know of the program's memory.
    pub(crate) soft: Option<Arc<SoftNic>>,
    /// What checks know of the context.
    pub(crate) check: Option<Arc<check::State>>,
}

/// Puts around the NIC what was asked for. Errors are sentences.
pub(crate) fn around(soft: Arc<SoftNic>) -> Result<Around, String> {
    let mut nic: Arc<dyn Nic> = Arc::<SoftNic>::clone(&soft);
    let mut soft = Some(soft);
    if let Some(plan) = settings::faults()? {
        soft = None;
        let faulty = Faulty::new(nic, plan);
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
    Ok(Around { nic, soft, check })
}
