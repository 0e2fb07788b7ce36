//! The windows of an adapter: keys for parts of regions, given and taken by requests of a send queue.
//!
//! A window has an entry of its own among the regions', which says where its bytes are as its region's does; so peers reach both
//! in the same way. The key in the entry is what is bound: whoever takes it away writes 0 there.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError, Weak};

use verbs::nic::WindowKind;
use verbs::{Access, Rkey, WindowBind};

use crate::contact::adapter::Adapter;
use crate::memory::known::{Known, REMOTELY};
use crate::memory::pd::PdUse;
use crate::shared::cause::Cause;
use crate::shared::layout::mr_index;
use crate::shared::mr_entry::{self, Described, Window};
use crate::sync::Ordering;
use crate::sync::table::Slot;

/// In a key: what the user of a window chooses.
const CHOSEN: u32 = 0xff;

/// The windows of an adapter by their indices.
#[derive(Debug, Default)]
pub(crate) struct Windows(Mutex<HashMap<usize, State>>);

/// A window, bound or not.
#[derive(Debug)]
struct State {
    kind: WindowKind,
    pd: PdUse,
    slot: Slot<Known>,
    /// The key that it was made with.
    key: u32,
    /// The region that it was bound to last.
    region: u32,
    /// The queue pair over which that was, if it is the only one to reach it.
    qpn: u32,
    /// How many times it was bound.
    given: u32,
}

impl State {
    /// Whether it is bound, and to what `is_that` says.
    fn is_bound(&self, adapter: &Adapter, is_that: impl Fn(&State) -> bool) -> bool {
        let entry = adapter.mr_entry(self.slot.number());
        is_that(self) && entry.key.load(Ordering::Relaxed) != 0
    }

    fn unbind(&self, adapter: &Adapter) {
        mr_entry::withdraw(adapter.mr_entry(self.slot.number()));
    }
}

impl Windows {
    fn all(&self) -> MutexGuard<'_, HashMap<usize, State>> {
        // Every change is a single step.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does something while none is bound to these regions, nor is any bound meanwhile; `None` if one is. It waits for nobody: whoever binds
    /// one may be posting.
    pub(crate) fn without<R>(
        &self,
        adapter: &Adapter,
        regions: [u32; 2],
        work: impl FnOnce() -> R,
    ) -> Option<R> {
        let all = self.all();
        let of_them = |state: &State| regions.contains(&state.region);
        let any = all.values().any(|state| state.is_bound(adapter, of_them));
        (!any).then(work)
    }

    /// Adds a window, which is not bound, by the key that it was made with.
    pub(crate) fn add(&self, kind: WindowKind, pd: PdUse, slot: Slot<Known>, key: u32) {
        let state = State {
            kind,
            pd,
            slot,
            key,
            region: 0,
            qpn: 0,
            given: 0,
        };
        self.all().insert(mr_index(key), state);
    }

    /// Unbinds a window and forgets it.
    pub(crate) fn remove(&self, adapter: &Adapter, key: u32) {
        let state = self.all().remove(&mr_index(key));
        if let Some(state) = &state {
            state.unbind(adapter);
        }
    }

    /// Binds a window by a request of a queue pair of this number and protection domain. `find` knows the regions.
    pub(crate) fn bind(
        &self,
        adapter: &Adapter,
        find: impl FnOnce(u32) -> Option<Known>,
        (qpn, pd): (u32, usize),
        bind: &WindowBind,
    ) -> Result<(), Cause> {
        let mut all = self.all();
        let index = mr_index(bind.rkey.0);
        let state = all.get_mut(&index).ok_or(Cause::WindowKey)?;
        if state.pd.number() != pd || (state.key ^ bind.rkey.0) & !CHOSEN != 0 {
            return Err(Cause::WindowKey);
        }
        let is_bound = state.is_bound(adapter, |_| true);
        match state.kind {
            WindowKind::First if bind.is_zero_based => return Err(Cause::WindowState),
            WindowKind::First if bind.len == 0 => {
                state.unbind(adapter);
                return Ok(());
            }
            WindowKind::Second if is_bound || bind.len == 0 => return Err(Cause::WindowState),
            _ => {}
        }
        // While the windows are locked no region lets go of those that are bound to it.
        let key = bind.region.0;
        let entry = adapter.published().mrs.get(mr_index(key));
        let region = entry.and_then(|entry| mr_entry::describe(entry, key));
        let region = region.ok_or(Cause::WindowRegion)?;
        let known = find(key).ok_or(Cause::WindowRegion)?;
        let access = bind.access & REMOTELY;
        let writes = access.intersects(Access::REMOTE_WRITE | Access::REMOTE_ATOMIC);
        if region.window.is_some()
            || region.pd as usize != pd
            || !region.access.contains(Access::WINDOW_BIND)
            || (writes && !region.access.contains(Access::LOCAL_WRITE))
        {
            return Err(Cause::WindowRegion);
        }
        let offset = region.offset(bind.addr, bind.len);
        let offset = offset.ok_or(Cause::WindowRange)?;
        state.unbind(adapter);
        state.region = key;
        state.given = state.given.wrapping_add(1);
        state.qpn = match state.kind {
            WindowKind::First => 0,
            WindowKind::Second => qpn,
        };
        let key = bind.rkey.0;
        let file = known.file;
        let holder = Weak::new();
        let known = Known {
            key,
            pd,
            file,
            holder,
        };
        state.slot.set(known);
        let described = Described {
            access,
            pd: pd as u32,
            kind: region.kind,
            addr: if bind.is_zero_based { 0 } else { bind.addr },
            len: bind.len,
            start: region.start + offset,
            in_file: region.in_file + offset,
            given: state.given,
            is_on_demand: false,
            window: Some(Window { qpn: state.qpn }),
        };
        mr_entry::announce(adapter.mr_entry(index), key, &described);
        Ok(())
    }

    /// Takes the key of a window away that was bound over this queue pair.
    pub(crate) fn invalidate(&self, adapter: &Adapter, qpn: u32, rkey: Rkey) -> Result<(), Cause> {
        let entry = adapter.published().mrs.get(mr_index(rkey.0));
        let revoked = entry.is_some_and(|entry| mr_entry::revoke(entry, rkey.0, qpn));
        revoked.then_some(()).ok_or(Cause::WindowKey)
    }

    /// Whether any is bound to a region.
    pub(crate) fn any_of(&self, adapter: &Adapter, region: u32) -> bool {
        let all = self.all();
        all.values()
            .any(|state| state.is_bound(adapter, |state| state.region == region))
    }

    /// Unbinds those that are bound to a region, which goes and has withdrawn its own key.
    pub(crate) fn unbind_all_of(&self, adapter: &Adapter, region: u32) {
        let all = self.all();
        let of_it = all.values().filter(|state| state.region == region);
        of_it.for_each(|state| state.unbind(adapter));
    }

    /// Unbinds those that were bound over a queue pair, which goes.
    pub(crate) fn unbind_all_over(&self, adapter: &Adapter, qpn: u32) {
        let all = self.all();
        let over_it = all.values().filter(|state| state.qpn == qpn);
        over_it.for_each(|state| state.unbind(adapter));
    }
}

#[cfg(test)]
mod tests {
    use verbs::nic::Nic;

    use super::*;
    use crate::testing::{Host, Side};

    #[test]
    fn the_file_of_a_region_for_windows_goes_to_those_who_reach_a_window() {
        let host = Host::new();
        let nic = host.open();
        let side = Side::on(&nic);
        let regions = &nic.objects.regions;
        let access = Access::LOCAL_WRITE | Access::WINDOW_BIND;
        let region = side.pd.allocate(4096, access).expect("memory");
        let window = nic.alloc_window(side.pd.num(), WindowKind::First);
        let window = window.expect("a window");
        let shared = side.shared(&nic);
        let bind = |len| {
            let bind = WindowBind {
                rkey: window.rkey(),
                region: region.lkey(),
                addr: region.remote(0).addr,
                len,
                access: Access::REMOTE_READ,
                is_zero_based: false,
            };
            regions.bind(shared.num, shared.pd, &bind).expect("bound");
        };
        let (whole, part) = (region.rkey().0, window.rkey().0);
        let is_given = |key| regions.file(key).is_some();
        let known = regions.known(whole).expect("it is there");
        assert!(known.file.is_some(), "a window needs it");
        assert!(!is_given(whole) && !is_given(part));
        for _ in 0..2 {
            bind(64);
            assert!(is_given(part) && !is_given(whole));
            bind(0);
            assert!(!is_given(part) && !is_given(whole));
        }
        bind(64);
        let all = side.pd.allocate(4096, Access::EVERYTHING).expect("memory");
        assert!(is_given(all.rkey().0));
        drop(region);
        assert!(!is_given(part) && !is_given(whole), "they have gone");
    }
}
