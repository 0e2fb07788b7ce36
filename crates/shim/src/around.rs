//! What is put around the NIC: faults, and a trace of what passes.

use std::sync::Arc;

use nic_soft::SoftNic;
use verbs::decorate::{Faulty, Traced};
use verbs::nic::Nic;

use crate::settings;
use crate::trace::Trace;

/// The NIC as the program gets it. Errors are sentences.
pub(crate) fn around(nic: Arc<SoftNic>) -> Result<Arc<dyn Nic>, String> {
    let mut nic: Arc<dyn Nic> = nic;
    if let Some(plan) = settings::faults()? {
        let faulty = Faulty::new(nic, plan);
        nic = Arc::new(faulty.map_err(|error| format!("faults around the NIC: {error}"))?);
    }
    if let Some(path) = settings::trace() {
        let trace = Trace::to(&path);
        let trace = trace.map_err(|error| format!("trace in {}: {error}", path.display()))?;
        nic = Arc::new(Traced::new(nic, trace));
    }
    Ok(nic)
}
