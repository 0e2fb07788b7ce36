//! What a request wants of a file, and whose opens and delegations are in its way. The file system says
//! whether it is refused; here is only who may be forgotten for it.

use std::collections::BTreeSet;

use files::{Delegation, Handle, Holder, Share};

use super::states::{ClientId, Held, State, States};

/// What a request wants of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Wants {
    pub(super) file: Handle,
    /// For whom; none: for nobody known.
    holder: Option<Holder>,
    /// What others must not deny.
    access: Share,
    /// What others must not have the file open for.
    deny: Share,
    /// Whose delegations exclude it: all, or those for writing.
    kind: Delegation,
}

impl Wants {
    /// An open of it.
    pub(super) fn open(file: Handle, holder: Holder, access: Share, deny: Share) -> Self {
        let writes = access.contains(Share::WRITE) || deny.contains(Share::READ);
        Self {
            file,
            holder: Some(holder),
            access,
            deny,
            kind: kind(writes),
        }
    }

    /// Its data, to be read or written.
    pub(super) fn data(file: Handle, holder: Option<Holder>, access: Share) -> Self {
        Self {
            file,
            holder,
            access,
            deny: Share::empty(),
            kind: kind(access.contains(Share::WRITE)),
        }
    }

    /// Another name or attribute for it.
    pub(super) fn change(file: Handle, holder: Option<Holder>) -> Self {
        Self {
            file,
            holder,
            access: Share::empty(),
            deny: Share::empty(),
            kind: Delegation::Write,
        }
    }

    /// Whether something that is held of the file is in its way. What was taken away is not, and locks of
    /// bytes are in the way of locks alone.
    fn conflicts(&self, state: &State) -> bool {
        match &state.held {
            Held::Open(open) => {
                let is_own = self.holder.is_some_and(|own| own.owner == open.owner);
                !is_own && (open.deny.intersects(self.access) || open.access.intersects(self.deny))
            }
            Held::Delegation { kind, .. } => {
                let is_own = self.holder.is_some_and(|own| own.client == state.client);
                !is_own && !state.is_revoked && [self.kind, *kind].contains(&Delegation::Write)
            }
            Held::Lock { .. } => false,
        }
    }
}

fn kind(writes: bool) -> Delegation {
    match writes {
        true => Delegation::Write,
        false => Delegation::Read,
    }
}

impl States {
    /// Who is in the way of what is wanted.
    pub(super) fn in_the_way(&self, wants: &Wants) -> BTreeSet<ClientId> {
        let held = self.of_file(wants.file).filter(|of| wants.conflicts(of));
        held.map(|state| state.client).collect()
    }
}
