//! OPEN, OPEN_CONFIRM, OPEN_DOWNGRADE, CLOSE.

use files::{
    Access, Answer, Attributes, Caller, CreateHow, Delegation, Error, Handle, Holder, Kind,
    LockRange, Once, Request, Share, allowed,
};

use crate::server::attributes::to_set;
use crate::server::compound::{Compound, change, name, put};
use crate::server::conflicts::Wants;
use crate::server::handles::Place;
use crate::server::owners::{OwnerKind, OwnerUse};
use crate::server::states::{ClientId, Held, Named, Open, StateNum};
use crate::wire::*;
use crate::xdr::Encoder;

/// A file that is there, or was made.
struct Opened {
    file: Handle,
    attributes: Attributes,
    directory: ChangeInfo4,
    set: Bitmap4,
    is_new: bool,
    /// Whether it was there, and is to be emptied when it is open.
    is_to_empty: bool,
    /// Whether a delegation of the client's is its permission: the file was opened under that, whatever
    /// its mode is by now (RFC 8881, section 10.2).
    is_delegated: bool,
}

/// No change, of nothing.
const UNCHANGED: ChangeInfo4 = ChangeInfo4 {
    atomic: false,
    before: 0,
    after: 0,
};

/// Into how many parts a volume's room is taken to fall, of which each delegation for writing has one.
const WRITERS: u64 = 64;

impl Compound<'_> {
    /// OPEN (RFC 8881, section 18.16).
    pub(super) async fn open(&mut self, of: &Open4Args<'_>, out: &mut Encoder) -> Nfsstat4 {
        match self.opened(of).await {
            Ok((answer, place)) => {
                let stateid = answer.stateid.clone();
                let status = put(out, NfsOpnum4::OP_OPEN, Ok(answer));
                self.go(place);
                self.current_stateid = Some(stateid);
                status
            }
            Err(status) => put::<()>(out, NfsOpnum4::OP_OPEN, Err(status)),
        }
    }

    async fn opened(&self, of: &Open4Args<'_>) -> Result<(Open4Resok<'static>, Place), Nfsstat4> {
        let client = match self.client {
            Some(client) => client,
            None => {
                self.door.renew_without_session(of.owner.clientid)?;
                of.owner.clientid
            }
        };
        let (access, deny) = shares(of.share_access, of.share_deny)?;
        let is_claim = matches!(of.claim, OpenClaim4::ClaimPrevious(_));
        // What is repeated was open before the restart, and nobody has what it would be in the way of.
        let is_reclaim = is_claim || self.door.is_in_grace() && self.is_repeat(of).await?;
        if is_claim || !is_reclaim {
            self.door.may_claim(client, is_claim).await?;
        }
        if matches!(of.openhow, Openflag4::Open4Create(_)) && !is_reclaim {
            self.may_create(client, of).await?;
        }
        let opened = self.locate(of, client).await?;
        let caller = self.caller(opened.file)?;
        self.may_open(&opened, &caller, access, is_claim || opened.is_delegated)?;
        let owner = self.door.owner(client, OwnerKind::Open, &of.owner.owner);
        let _turn = self.door.turns.take(owner.number, opened.file).await;
        // Whoever has made a file opens it: its client would find it there when it asks again. So it may
        // hold more than it may, by as many as make files at once.
        if !opened.is_new {
            self.may_hold(client, owner.number, opened.file)?;
        }
        let holder = Holder {
            client,
            owner: owner.number,
        };
        // Permission has been judged, and not by the mode alone: of a new file it does not bind its maker.
        let judged = Caller {
            holder: caller.holder,
            ..Caller::ROOT
        };
        let open = || {
            let request = Request::Open {
                file: opened.file,
                holder,
                access,
                deny,
                reclaim: is_reclaim,
            };
            self.ask(&judged, request)
        };
        let wants = Wants::open(opened.file, holder, access, deny);
        self.door.settling(&[wants], open).await?;
        self.door.still_there(client).await?;
        if opened.is_to_empty {
            self.empty(opened.file, caller, holder).await?;
            self.door.still_there(client).await?;
        }
        if is_claim {
            // Who was here before the restart is no ghost.
            self.door.states.borrow_mut().owners.confirm(owner.number);
        }
        let num = self.remember(client, &owner, opened.file, access, deny);
        let stateid = self.door.states.borrow().stateid(num);
        let delegation = self.delegate(of, client, opened.file).await;
        let states = self.door.states.borrow();
        let state = states.get(num).filter(|_| states.is_still(num, &stateid));
        let is_confirmed = match state.map(|state| &state.held) {
            Some(Held::Open(open)) => open.is_confirmed,
            _ => return Err(Nfsstat4::NFS4ERR_EXPIRED),
        };
        let mut flags = OPEN4_RESULT_LOCKTYPE_POSIX;
        if self.minor > 0 {
            flags |= OPEN4_RESULT_PRESERVE_UNLINKED;
        }
        if !is_confirmed {
            flags |= OPEN4_RESULT_CONFIRM;
        }
        let answer = Open4Resok {
            stateid,
            cinfo: opened.directory,
            rflags: flags,
            attrset: opened.set,
            delegation,
        };
        Ok((answer, Place::Object(opened.file)))
    }

    /// Whether a client may open what it asks to be made. At its bound it may open once more what the same owner has open:
    /// that takes nothing, and only [`CreateHow::Unchecked`] or a repeat leads to it.
    ///
    /// # Errors
    /// Those of [`Self::may_make`].
    async fn may_create(&self, client: ClientId, of: &Open4Args<'_>) -> Result<(), Nfsstat4> {
        let Err(refused) = self.may_make(client) else {
            return Ok(());
        };
        let known = {
            let states = self.door.states.borrow();
            let name = &of.owner.owner;
            states.owners.known(client, OwnerKind::Open, name)
        };
        let (OpenClaim4::ClaimNull(component), Some(owner)) = (&of.claim, known) else {
            return Err(refused);
        };
        let found = self.existing(name(component)?).await;
        let states = self.door.states.borrow();
        let has = found.is_ok_and(|of| states.of_owner(owner, of.file).is_some());
        if has { Ok(()) } else { Err(refused) }
    }

    /// Cuts off all of a file that has just been opened. If that is refused, so is the OPEN: what it has
    /// added to what the owner had open is taken back.
    async fn empty(&self, file: Handle, caller: Caller, holder: Holder) -> Result<(), Nfsstat4> {
        let size = Some(0);
        let set = files::SetAttributes {
            size,
            ..files::SetAttributes::default()
        };
        let caller = Caller {
            holder: Some(holder),
            // The operation's own key has the answer of its first half.
            once: self.once().map(second_half),
            ..caller
        };
        let wants = Wants::data(file, Some(holder), Share::WRITE);
        let cut = || self.ask_of_data(&caller, Request::SetAttributes(file, set));
        let result = self.door.settling(&[wants], cut).await;
        let Err(status) = result else {
            return Ok(());
        };
        let (access, deny) = {
            let states = self.door.states.borrow();
            let before = states.of_owner(holder.owner, file);
            match before.and_then(|num| states.get(num)).map(|of| &of.held) {
                Some(Held::Open(open)) => (open.access, open.deny),
                _ => (Share::empty(), Share::empty()),
            }
        };
        let request = Request::Downgrade {
            file,
            holder,
            access,
            deny,
        };
        self.door.have_undone(&request).await;
        Err(match status {
            Nfsstat4::NFS4ERR_LOCKED => Nfsstat4::NFS4ERR_SHARE_DENIED,
            other => other,
        })
    }

    /// Whether this is an OPEN again that has made its file before a restart of the server (RFC
    /// 8881, section 2.10.6.5).
    async fn is_repeat(&self, of: &Open4Args<'_>) -> Result<bool, Nfsstat4> {
        let makes = matches!(of.openhow, Openflag4::Open4Create(_));
        let is_by_name = matches!(of.claim, OpenClaim4::ClaimNull(_));
        let Some(once) = self.once().filter(|_| makes && is_by_name) else {
            return Ok(false);
        };
        match self.ask(&Caller::ROOT, Request::KeptAnswer(once)).await {
            Ok(answer) => Ok(matches!(answer, Answer::Created { is_new: true, .. })),
            Err(Nfsstat4::NFS4ERR_NOENT) => Ok(false),
            Err(status) => Err(status),
        }
    }

    /// The file that is to be opened, made if it is to be.
    async fn locate(&self, of: &Open4Args<'_>, client: ClientId) -> Result<Opened, Nfsstat4> {
        match &of.claim {
            OpenClaim4::ClaimNull(component) => self.by_name(component, &of.openhow).await,
            OpenClaim4::ClaimDelegateCur(claim) => {
                let how = Openflag4::Default(Opentype4::OPEN4_NOCREATE);
                let opened = self.by_name(&claim.file, &how).await?;
                self.under(&claim.delegate_stateid, client, of.share_access, opened)
            }
            OpenClaim4::ClaimPrevious(_) | OpenClaim4::ClaimFh => self.by_handle(&of.openhow).await,
            OpenClaim4::ClaimDelegCurFh(stateid) => {
                let opened = self.by_handle(&of.openhow).await?;
                self.under(stateid, client, of.share_access, opened)
            }
            // Delegations end with their clients.
            OpenClaim4::ClaimDelegatePrev(_) | OpenClaim4::ClaimDelegPrevFh => {
                Err(Nfsstat4::NFS4ERR_NOTSUPP)
            }
        }
    }

    /// A file that was opened under a client's delegation of it.
    ///
    /// # Errors
    /// BAD_STATEID: the stateid is not that of such a delegation, or that is for reading alone.
    fn under(
        &self,
        given: &Stateid4,
        client: ClientId,
        access: u32,
        opened: Opened,
    ) -> Result<Opened, Nfsstat4> {
        let stateid = self.stateid(given)?;
        let states = self.door.states.borrow();
        let bad = Nfsstat4::NFS4ERR_BAD_STATEID;
        let Named::State(num) = states.find(&stateid, Some(client))? else {
            return Err(bad);
        };
        let state = states.get(num).filter(|state| state.file == opened.file);
        let Some(Held::Delegation { kind, .. }) = state.map(|state| &state.held) else {
            return Err(bad);
        };
        let writes = access & OPEN4_SHARE_ACCESS_WRITE != 0;
        if writes && *kind == Delegation::Read {
            return Err(bad);
        }
        Ok(Opened {
            is_delegated: true,
            ..opened
        })
    }

    async fn by_handle(&self, how: &Openflag4<'_>) -> Result<Opened, Nfsstat4> {
        if matches!(how, Openflag4::Open4Create(_)) {
            return Err(Nfsstat4::NFS4ERR_INVAL);
        }
        let file = self.object_or(Nfsstat4::NFS4ERR_ISDIR)?;
        let caller = self.caller(file)?;
        match self.ask(&caller, Request::GetAttributes(file)).await? {
            Answer::Attributes(attributes) => Ok(Opened {
                file,
                attributes,
                directory: UNCHANGED,
                set: Bitmap4::EMPTY,
                is_new: false,
                is_to_empty: false,
                is_delegated: false,
            }),
            _ => Err(Nfsstat4::NFS4ERR_SERVERFAULT),
        }
    }

    async fn by_name(
        &self,
        component: &Component4<'_>,
        how: &Openflag4<'_>,
    ) -> Result<Opened, Nfsstat4> {
        let name = name(component)?;
        let how = match how {
            Openflag4::Open4Create(how) => how,
            Openflag4::Default(_) => return self.existing(name).await,
        };
        let directory = self.object()?;
        let none = || (files::SetAttributes::default(), Bitmap4::EMPTY);
        let (how, (attributes, set)) = match how {
            Createhow4::Unchecked4(fattr) => (CreateHow::Unchecked, to_set(fattr, self.minor)?),
            Createhow4::Guarded4(fattr) => (CreateHow::Guarded, to_set(fattr, self.minor)?),
            Createhow4::Exclusive4(verifier) => (CreateHow::Exclusive(*verifier), none()),
            Createhow4::Exclusive41(with) if self.minor > 0 => {
                let set = to_set(&with.cva_attrs, self.minor)?;
                (CreateHow::Exclusive(with.cva_verf), set)
            }
            Createhow4::Exclusive41(_) => return Err(Nfsstat4::NFS4ERR_INVAL),
        };
        // A file that is there is emptied when all else has let it be opened, and a new one is empty.
        let empties = how == CreateHow::Unchecked && attributes.size == Some(0);
        let attributes = files::SetAttributes {
            size: attributes.size.filter(|size| *size != 0),
            ..attributes
        };
        let caller = self.changer(directory)?;
        let request = Request::CreateFile {
            directory,
            name,
            how,
            attributes,
        };
        let created = match self.door.fs.call(&caller, request).await {
            // So that a 4.0 client looks at what the name leads to.
            Err(Error::WrongKind) if self.minor == 0 => Err(Nfsstat4::NFS4ERR_SYMLINK),
            created => created.map_err(|error| self.of_error(error)),
        };
        let Answer::Created {
            handle,
            attributes: of,
            directory: info,
            is_new,
        } = self.in_directory(directory, created).await?
        else {
            return Err(Nfsstat4::NFS4ERR_SERVERFAULT);
        };
        // Of the attributes for a file that was there already, only the end was set.
        let is_to_empty = empties && !is_new;
        let set = match (is_new, is_to_empty) {
            (true, _) => set,
            (false, true) => Bitmap4::of(&[FATTR4_SIZE]),
            (false, false) => Bitmap4::EMPTY,
        };
        Ok(Opened {
            file: handle,
            attributes: of,
            directory: change(info),
            set,
            is_new,
            is_to_empty,
            is_delegated: false,
        })
    }

    async fn existing(&self, name: files::Name) -> Result<Opened, Nfsstat4> {
        let directory = match self.place()? {
            Place::Object(directory) => directory,
            Place::Pseudo(node) => {
                let found = self.door.exports.lookup(node, &name);
                return Err(match found {
                    Some(_) => Nfsstat4::NFS4ERR_ISDIR,
                    None => Nfsstat4::NFS4ERR_NOENT,
                });
            }
        };
        let caller = self.caller(directory)?;
        let found = self.ask(&caller, Request::Lookup(directory, name)).await;
        match self.in_directory(directory, found).await? {
            Answer::Found(file, attributes) => Ok(Opened {
                file,
                attributes,
                directory: UNCHANGED,
                set: Bitmap4::EMPTY,
                is_new: false,
                is_to_empty: false,
                is_delegated: false,
            }),
            _ => Err(Nfsstat4::NFS4ERR_SERVERFAULT),
        }
    }

    async fn in_directory(
        &self,
        directory: Handle,
        result: Result<Answer, Nfsstat4>,
    ) -> Result<Answer, Nfsstat4> {
        match result {
            Ok(answer) => Ok(answer),
            Err(status) => Err(self.through_symlink(directory, status).await),
        }
    }

    /// Kinds and permissions. Whoever has made a file opens it whatever its mode.
    fn may_open(
        &self,
        opened: &Opened,
        caller: &Caller,
        access: Share,
        was_judged: bool,
    ) -> Result<(), Nfsstat4> {
        match opened.attributes.kind {
            Kind::File => {}
            Kind::Directory => return Err(Nfsstat4::NFS4ERR_ISDIR),
            // So that a 4.0 client looks at what the name leads to.
            _ if self.minor == 0 => return Err(Nfsstat4::NFS4ERR_SYMLINK),
            Kind::Symlink => return Err(Nfsstat4::NFS4ERR_SYMLINK),
            _ => return Err(Nfsstat4::NFS4ERR_WRONG_TYPE),
        }
        let export = self
            .door
            .exports
            .of(opened.file.volume, self.connection.peer());
        if export.is_some_and(|export| export.read_only) && access.contains(Share::WRITE) {
            return Err(Nfsstat4::NFS4ERR_ROFS);
        }
        if opened.is_new || was_judged {
            return Ok(());
        }
        let granted = allowed(caller, &opened.attributes);
        // Who may execute a file may read it: the client's kernel has to.
        let reads = granted.intersects(Access::READ | Access::EXECUTE);
        let may_read = !access.contains(Share::READ) || reads;
        let may_write = !access.contains(Share::WRITE) || granted.contains(Access::MODIFY);
        if may_read && may_write {
            Ok(())
        } else {
            Err(Nfsstat4::NFS4ERR_ACCESS)
        }
    }

    /// The open is the door's from now on.
    fn remember(
        &self,
        client: ClientId,
        owner: &OwnerUse<'_>,
        file: Handle,
        access: Share,
        deny: Share,
    ) -> StateNum {
        let mut states = self.door.states.borrow_mut();
        let owner = owner.number;
        if let Some(num) = states.of_owner(owner, file) {
            if let Some(Held::Open(open)) = states.get_mut(num).map(|state| &mut state.held) {
                open.add(access, deny);
            }
            states.changed(num);
            return num;
        }
        let is_confirmed = self.minor > 0 || states.owners.is_confirmed(owner);
        let open = Open::new(owner, access, deny, is_confirmed);
        states.add(client, file, Held::Open(open))
    }

    /// A delegation with the open, where the client can be told that it is wanted back and nobody is in
    /// the way.
    async fn delegate(
        &self,
        of: &Open4Args<'_>,
        client: ClientId,
        file: Handle,
    ) -> OpenDelegation4<'static> {
        let wanted = of.share_access & OPEN4_SHARE_ACCESS_WANT_DELEG_MASK;
        let is_reclaim = match &of.claim {
            OpenClaim4::ClaimPrevious(kind) => {
                if *kind == OpenDelegationType4::OPEN_DELEGATE_NONE {
                    return OpenDelegation4::OpenDelegateNone;
                }
                true
            }
            OpenClaim4::ClaimNull(_) | OpenClaim4::ClaimFh => false,
            _ => return OpenDelegation4::OpenDelegateNone,
        };
        let refuse = |why: OpenNoneDelegation4| {
            if wanted == 0 || self.minor == 0 {
                OpenDelegation4::OpenDelegateNone
            } else {
                OpenDelegation4::OpenDelegateNoneExt(why)
            }
        };
        if wanted == OPEN4_SHARE_ACCESS_WANT_NO_DELEG || wanted == OPEN4_SHARE_ACCESS_WANT_CANCEL {
            return refuse(OpenNoneDelegation4::Default(
                WhyNoDelegation4::WND4_NOT_WANTED,
            ));
        }
        if !self.door.can_recall(client) || !self.door.may_delegate(client, is_reclaim) {
            return refuse(OpenNoneDelegation4::Wnd4Resource(false));
        }
        let kind = match &of.claim {
            OpenClaim4::ClaimPrevious(OpenDelegationType4::OPEN_DELEGATE_READ) => Delegation::Read,
            OpenClaim4::ClaimPrevious(_) => Delegation::Write,
            _ if of.share_access & OPEN4_SHARE_ACCESS_WRITE != 0 => Delegation::Write,
            _ => Delegation::Read,
        };
        // To have a file for reading alone is of no use to who writes it.
        if kind == Delegation::Write && wanted == OPEN4_SHARE_ACCESS_WANT_READ_DELEG {
            return refuse(OpenNoneDelegation4::Wnd4Resource(false));
        }
        let referring = self.on_slot.map(|on| {
            let call = ReferringCall4 {
                rc_sequenceid: on.sequence,
                rc_slotid: on.slot,
            };
            (on.session, call)
        });
        match self
            .door
            .delegate(client, (file, kind), is_reclaim, referring)
            .await
        {
            Some(stateid) => self.delegation(stateid, file, kind).await,
            None => refuse(OpenNoneDelegation4::Wnd4Contention(false)),
        }
    }

    /// A delegation as the client is told of it. What is written under it and kept by the client has to
    /// find room later: it may become as large as there is room for several of its kind.
    async fn delegation(
        &self,
        stateid: Stateid4,
        file: Handle,
        kind: Delegation,
    ) -> OpenDelegation4<'static> {
        if kind == Delegation::Read {
            return OpenDelegation4::OpenDelegateRead(OpenReadDelegation4 {
                stateid,
                recall: false,
                permissions: nobody(),
            });
        }
        let room = self.ask(&Caller::ROOT, Request::Stat(file.volume)).await;
        let size_max = match room {
            Ok(Answer::Stat(room)) => room.bytes_free / WRITERS,
            _ => 0,
        };
        OpenDelegation4::OpenDelegateWrite(OpenWriteDelegation4 {
            stateid,
            recall: false,
            space_limit: NfsSpaceLimit4::NfsLimitSize(size_max),
            permissions: nobody(),
        })
    }

    /// OPEN_DOWNGRADE (RFC 8881, section 18.18).
    pub(super) async fn open_downgrade(
        &mut self,
        of: &OpenDowngrade4Args,
    ) -> Result<OpenDowngrade4Resok, Nfsstat4> {
        let file = self.object_or(Nfsstat4::NFS4ERR_ISDIR)?;
        let (access, deny) = shares(of.share_access, of.share_deny)?;
        let before = self.held(&of.open_stateid, file)?;
        let owner = self.door.owner_of(self.open_holder(before)?.owner);
        let _turn = self.door.turns.take(owner.number, file).await;
        // It may have been closed meanwhile.
        let num = self.held(&of.open_stateid, file)?;
        let holder = self.open_holder(num)?;
        let (stateid, reduced) = {
            let states = self.door.states.borrow();
            let Some(Held::Open(open)) = states.get(num).map(|state| &state.held) else {
                return Err(Nfsstat4::NFS4ERR_BAD_STATEID);
            };
            let mut open = open.clone();
            open.reduce(access, deny)?;
            (states.stateid(num), open)
        };
        let caller = self.caller(file)?;
        let request = Request::Downgrade {
            file,
            holder,
            access,
            deny,
        };
        self.ask(&caller, request).await?;
        let open_stateid = {
            let mut states = self.door.states.borrow_mut();
            if !states.is_still(num, &stateid) {
                return Err(Nfsstat4::NFS4ERR_EXPIRED);
            }
            if let Some(state) = states.get_mut(num) {
                state.held = Held::Open(reduced);
            }
            states.changed(num)
        };
        self.current_stateid = Some(open_stateid.clone());
        Ok(OpenDowngrade4Resok { open_stateid })
    }

    fn open_holder(&self, num: StateNum) -> Result<Holder, Nfsstat4> {
        let states = self.door.states.borrow();
        match states.get(num) {
            Some(state) => match &state.held {
                Held::Open(open) => Ok(Holder {
                    client: state.client,
                    owner: open.owner,
                }),
                _ => Err(Nfsstat4::NFS4ERR_BAD_STATEID),
            },
            None => Err(Nfsstat4::NFS4ERR_BAD_STATEID),
        }
    }

    /// CLOSE (RFC 8881, section 18.2), with the locks that were taken under the open.
    pub(super) async fn close(&mut self, of: &Close4Args) -> Result<Stateid4, Nfsstat4> {
        let file = self.object_or(Nfsstat4::NFS4ERR_ISDIR)?;
        let before = self.held(&of.open_stateid, file)?;
        let owner = self.door.owner_of(self.open_holder(before)?.owner);
        let _turn = self.door.turns.take(owner.number, file).await;
        // It may have been closed, or opened once more, meanwhile.
        let num = self.held(&of.open_stateid, file)?;
        let holder = self.open_holder(num)?;
        let stateid = self.door.states.borrow().stateid(num);
        self.unlock_under(num, file).await?;
        let caller = self.caller(file)?;
        let request = Request::Downgrade {
            file,
            holder,
            access: Share::empty(),
            deny: Share::empty(),
        };
        match self.ask(&caller, request).await {
            // What the file system does not have is not open here either.
            Ok(_) | Err(Nfsstat4::NFS4ERR_BAD_STATEID) => {}
            Err(status) => return Err(status),
        }
        {
            let mut states = self.door.states.borrow_mut();
            if states.is_still(num, &stateid) {
                states.remove(num);
                states.owners.closes(owner.number, stateid.other);
            }
        }
        // Nothing more can be done with it: the stateid that stands for none.
        let closed = Stateid4 {
            seqid: u32::MAX,
            other: [0; 12],
        };
        self.current_stateid = Some(closed.clone());
        Ok(closed)
    }

    /// Gives up the locks that were taken under an open, and under no other.
    async fn unlock_under(&self, open: StateNum, file: Handle) -> Result<(), Nfsstat4> {
        let locks = self.door.states.borrow().locks_under(open);
        for lock in locks {
            let (stateid, holder) = {
                let states = self.door.states.borrow();
                match states.get(lock) {
                    Some(state) => match state.held {
                        Held::Lock { owner, .. } => {
                            let client = state.client;
                            (states.stateid(lock), Holder { client, owner })
                        }
                        _ => continue,
                    },
                    None => continue,
                }
            };
            let _owner = self.door.owner_of(holder.owner);
            let _turn = self.door.turns.take(holder.owner, file).await;
            {
                let mut states = self.door.states.borrow_mut();
                if !states.is_still(lock, &stateid) || states.leave_open(lock, open) {
                    continue;
                }
            }
            let range = LockRange {
                offset: 0,
                len: None,
            };
            let request = Request::Unlock {
                file,
                holder,
                range,
            };
            let caller = self.caller(file)?;
            self.ask(&caller, request).await?;
            let mut states = self.door.states.borrow_mut();
            if states.is_still(lock, &stateid) {
                states.remove(lock);
            }
        }
        Ok(())
    }

    /// OPEN_CONFIRM (RFC 7530, section 16.18).
    pub(super) fn open_confirm(
        &self,
        of: &OpenConfirm4Args,
    ) -> Result<OpenConfirm4Resok, Nfsstat4> {
        let file = self.object_or(Nfsstat4::NFS4ERR_ISDIR)?;
        let num = self.held(&of.open_stateid, file)?;
        let mut states = self.door.states.borrow_mut();
        let owner = match states.get_mut(num).map(|state| &mut state.held) {
            Some(Held::Open(open)) if !open.is_confirmed => {
                open.is_confirmed = true;
                open.owner
            }
            _ => return Err(Nfsstat4::NFS4ERR_BAD_STATEID),
        };
        states.owners.confirm(owner);
        Ok(OpenConfirm4Resok {
            open_stateid: states.changed(num),
        })
    }
}

/// The key of what an operation does after what its own key is for.
fn second_half(of: Once) -> Once {
    let operation = of.operation | 1 << 31;
    Once { operation, ..of }
}

/// What an open is for, and what others must not.
fn shares(access: u32, deny: u32) -> Result<(Share, Share), Nfsstat4> {
    let access = access & OPEN4_SHARE_ACCESS_BOTH;
    if access == 0 || deny > OPEN4_SHARE_DENY_BOTH {
        return Err(Nfsstat4::NFS4ERR_INVAL);
    }
    let share = |bits: u32| Share::from_bits_truncate(bits as u8);
    Ok((share(access), share(deny)))
}

/// Nobody is allowed anything by a delegation: the client asks ACCESS.
fn nobody() -> Nfsace4<'static> {
    Nfsace4 {
        r#type: 0,
        flag: 0,
        access_mask: 0,
        who: "".into(),
    }
}
