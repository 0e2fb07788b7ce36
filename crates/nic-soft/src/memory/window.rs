//! A memory window, as its owner holds it.

use std::sync::Arc;

use verbs::nic::{NicWindow, WindowKind};
use verbs::{Rkey, VerbsError};

use crate::memory::mr::Regions;
use crate::memory::pd::PdUse;

/// A window as its owner holds it.
#[derive(Debug)]
pub(crate) struct SoftWindow {
    regions: Arc<Regions>,
    key: u32,
}

impl SoftWindow {
    pub(crate) fn new(
        regions: &Arc<Regions>,
        pd: PdUse,
        kind: WindowKind,
    ) -> Result<Self, VerbsError> {
        let (key, slot) = regions.take_window()?;
        regions.windows().add(kind, pd, slot, key);
        let regions = Arc::clone(regions);
        Ok(SoftWindow { regions, key })
    }
}

impl NicWindow for SoftWindow {
    fn rkey(&self) -> Rkey {
        Rkey(self.key)
    }
}

impl Drop for SoftWindow {
    fn drop(&mut self) {
        let adapter = self.regions.adapter();
        self.regions.windows().remove(adapter, self.key);
        // Nobody may still be looking at the entry when it describes a region.
        adapter.quiescence.wait();
    }
}
