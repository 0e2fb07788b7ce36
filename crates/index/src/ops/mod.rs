//! One request, from its places in the queues to its answer.
//!
//! | module | what it carries out |
//! | --- | --- |
//! | `look` | what changes nothing |
//! | `create` | new objects |
//! | `remove` | names that go, and objects with them |
//! | `rename` | names that move |
//! | `attributes` | changes of attributes, links |
//! | `xattrs` | extended attributes |
//! | `holding` | opens, locks, delegations, the grace period |
//! | `records` | rows of the door's own |

mod attributes;
mod create;
mod holding;
mod look;
mod records;
mod remove;
mod rename;
mod xattrs;

use std::rc::Rc;

use files::waits::{Wait, waiting};
use files::{Answer, Caller, Delegation, Error, Handle, Name, New, Once, Request, Share, allowed};
use meta::Row;

use crate::commit::Draft;
use crate::format::keys;
use crate::format::rows;
use crate::inner::{Inner, Job, Loaded, Stop, bad_row};
use crate::slots::{Held, Mode, Place};

/// How often a request is begun anew because what it had read has changed.
const TRIES_MAX: usize = 32;

impl Inner {
    /// The places that a request needs, as far as its own words say.
    pub(crate) fn places(&self, request: &Request) -> Vec<(Place, Mode)> {
        let look = |object: &Handle| vec![(Place::Object(*object), Mode::Look)];
        let data = |object: &Handle| vec![(Place::Object(*object), Mode::Data)];
        let alone = |object: &Handle| vec![(Place::Object(*object), Mode::Exclusive)];
        let entry = |directory: &Handle, name: &Name| {
            (
                Place::Object(*directory),
                Mode::Entry(self.names.first(name)),
            )
        };
        match request {
            Request::Lookup(directory, name) => {
                let hash = self.names.first(name);
                vec![(Place::Object(*directory), Mode::Name(hash))]
            }
            Request::Create {
                directory,
                new: New::Directory,
                ..
            } => alone(directory),
            Request::Create {
                directory, name, ..
            }
            | Request::CreateFile {
                directory, name, ..
            }
            | Request::Remove {
                directory, name, ..
            } => vec![entry(directory, name)],
            Request::Rename {
                from,
                from_name,
                to,
                to_name,
            } => vec![entry(from, from_name), entry(to, to_name)],
            Request::Link {
                object,
                directory,
                name,
            } => vec![
                (Place::Object(*object), Mode::Exclusive),
                entry(directory, name),
            ],
            Request::SetAttributes(object, _)
            | Request::SetXattr { object, .. }
            | Request::RemoveXattr(object, _) => alone(object),
            Request::Allocate(object, _) | Request::Deallocate(object, _) => {
                let mut both = alone(object);
                both.push((Place::Map(*object), Mode::Exclusive));
                both
            }
            Request::Copy { from, to, .. } | Request::Clone { from, to, .. } => {
                let mut both = alone(to);
                both.push((Place::Map(*to), Mode::Exclusive));
                // A clone is of one moment; while much is copied, writes of the source go on.
                let of_source = match request {
                    Request::Clone { .. } => Mode::Exclusive,
                    _ => Mode::Data,
                };
                if from != to {
                    both.push((Place::Object(*from), of_source));
                }
                both
            }
            Request::Commit(object, _) | Request::Seek(object, ..) => data(object),
            Request::GetAttributes(object)
            | Request::Access(object, _)
            | Request::Parent(object)
            | Request::ReadLink(object)
            | Request::ReadDirectory {
                directory: object, ..
            }
            | Request::GetXattr(object, _)
            | Request::ListXattrs { object, .. }
            | Request::Open { file: object, .. }
            | Request::Downgrade { file: object, .. }
            | Request::Lock { file: object, .. }
            | Request::TestLock { file: object, .. }
            | Request::Unlock { file: object, .. }
            | Request::HasLocks { file: object, .. }
            | Request::Delegate { file: object, .. }
            | Request::ReturnDelegation { file: object, .. } => look(object),
            _ => Vec::new(),
        }
    }

    /// Carries a request out, once it stands in its queues.
    pub(crate) async fn carry_out(
        self: Rc<Self>,
        caller: Caller,
        request: Request,
        held: Held,
    ) -> Result<Answer, Error> {
        waiting(Wait::Queue, held.ready()).await;
        self.count(|counts| counts.requests += 1);
        for _ in 0..TRIES_MAX {
            match self.attempt(&caller, &request, &held).await {
                Ok(answer) => return Ok(answer),
                Err(Stop::Refused(error)) => return Err(error),
                Err(Stop::Again) => {}
            }
        }
        Err(Error::Delay)
    }

    async fn attempt(
        &self,
        caller: &Caller,
        request: &Request,
        held: &Held,
    ) -> Result<Answer, Stop> {
        let mut job = Job {
            caller,
            held,
            once: None,
        };
        if let Some(once) = caller.once.filter(|_| request.is_durable_change()) {
            let (row, answer) = self.kept(&once).await?;
            if let Some(answer) = answer {
                self.count(|counts| counts.repeats += 1);
                return Ok(answer);
            }
            job.once = Some((once, row));
        }
        self.dispatch(&job, request).await
    }

    /// The row of an operation's slot, and the answer in it if it is that operation's.
    async fn kept(&self, once: &Once) -> Result<(Option<Row>, Option<Answer>), Stop> {
        let key = keys::once(once);
        let row = self.get(&key).await?;
        let Some(found) = &row else {
            return Ok((None, None));
        };
        let (sequence, answer) =
            rows::decode_once(&found.value).map_err(|bad| bad_row(&key, bad))?;
        let answer = (sequence == once.sequence).then_some(answer);
        Ok((row, answer))
    }

    async fn dispatch(&self, job: &Job<'_>, request: &Request) -> Result<Answer, Stop> {
        match request {
            Request::GetAttributes(object) => self.get_attributes(*object).await,
            Request::Access(object, wanted) => {
                let loaded = self.load(*object).await?;
                let access = allowed(job.caller, &loaded.inode.attributes) & *wanted;
                Ok(Answer::Access(access))
            }
            Request::Lookup(directory, name) => self.lookup(job, *directory, name).await,
            Request::Parent(directory) => self.parent(job, *directory).await,
            Request::ReadLink(object) => self.read_link(*object).await,
            Request::ReadDirectory {
                directory,
                cookie,
                bytes_max,
                attributes,
            } => {
                let page = (*cookie, *bytes_max, *attributes);
                self.read_directory(job, *directory, page).await
            }
            Request::Stat(volume) => self.stat(*volume),
            Request::Create {
                directory,
                name,
                new,
                attributes,
            } => self.create(job, (*directory, name), new, attributes).await,
            Request::CreateFile {
                directory,
                name,
                how,
                attributes,
            } => {
                let place = (*directory, name);
                self.create_file(job, place, *how, attributes).await
            }
            Request::Remove {
                directory,
                name,
                directory_only,
            } => self.remove(job, (*directory, name), *directory_only).await,
            Request::Rename {
                from,
                from_name,
                to,
                to_name,
            } => self.rename(job, (*from, from_name), (*to, to_name)).await,
            Request::Link {
                object,
                directory,
                name,
            } => self.link(job, *object, (*directory, name)).await,
            Request::SetAttributes(object, set) => self.set_attributes(job, *object, set).await,
            Request::GetXattr(object, name) => self.get_xattr(job, *object, name).await,
            Request::SetXattr {
                object,
                name,
                value,
                how,
            } => self.set_xattr(job, *object, (name, value), *how).await,
            Request::RemoveXattr(object, name) => self.remove_xattr(job, *object, name).await,
            Request::ListXattrs {
                object,
                cookie,
                bytes_max,
            } => self.list_xattrs(job, *object, (*cookie, *bytes_max)).await,
            Request::Commit(file, range) => self.commit_data(*file, *range).await,
            Request::Allocate(file, range) => self.allocate(job, *file, *range).await,
            Request::Deallocate(file, range) => self.deallocate(job, *file, *range).await,
            Request::Seek(file, offset, what) => self.seek(job, *file, (*offset, *what)).await,
            Request::Copy {
                from,
                range,
                to,
                offset,
            } => self.copy(job, (*from, *range), (*to, *offset)).await,
            Request::Clone {
                from,
                range,
                to,
                offset,
            } => self.clone_range(job, (*from, *range), (*to, *offset)).await,
            Request::KeptAnswer(once) => {
                let (_, answer) = self.kept(once).await?;
                answer.ok_or_else(|| Error::NotFound.into())
            }
            Request::EndSession(session) => {
                self.end_session(*session).await?;
                Ok(Answer::Done)
            }
            Request::PutRecord { key, value } => self.put_record(key, value).await,
            Request::RemoveRecord(key) => self.remove_record(key).await,
            Request::Records { after } => self.records(after).await,
            holding => self.hold(job, holding).await,
        }
    }

    /// Refuses a caller who neither has a file open for it nor is allowed it by the mode.
    pub(crate) fn need_share(
        &self,
        caller: &Caller,
        file: Handle,
        loaded: &Loaded,
        share: Share,
    ) -> Result<(), Error> {
        if self.state.borrow().holds.has_open(file, caller, share) {
            return Ok(());
        }
        let mut access = files::Access::empty();
        access.set(files::Access::READ, share.contains(Share::READ));
        access.set(files::Access::MODIFY, share.contains(Share::WRITE));
        crate::rules::need(caller, &loaded.inode.attributes, access)
    }

    /// Permission for data: by mode or open, by others' opens, in the grace period.
    pub(crate) fn need_data(
        &self,
        caller: &Caller,
        file: Handle,
        loaded: &Loaded,
        share: Share,
    ) -> Result<(), Error> {
        self.need_share(caller, file, loaded, share)?;
        let state = self.state.borrow();
        state.holds.check_share(file, caller, share)?;
        state.holds.check_claimed(file, caller, share)
    }

    /// The same, and has delegations given back that are in the way.
    pub(crate) fn need_io(
        &self,
        caller: &Caller,
        file: Handle,
        loaded: &Loaded,
        share: Share,
    ) -> Result<(), Error> {
        self.need_data(caller, file, loaded, share)?;
        let kind = match share.contains(Share::WRITE) {
            true => Delegation::Write,
            false => Delegation::Read,
        };
        self.recall(caller.holder.map(|holder| holder.client), file, kind)
    }

    /// Has delegations given back that exclude an access of this kind. Refuses it meanwhile.
    pub(crate) fn recall(
        &self,
        client: Option<u64>,
        file: Handle,
        access: Delegation,
    ) -> Result<(), Error> {
        let mut tell = |event| {
            self.events.borrow_mut().push_back(event);
            self.has_events.notify_one();
        };
        let mut state = self.state.borrow_mut();
        state
            .holds
            .check_delegations(file, client, access, &mut tell)
    }

    /// The same for a change of attributes or names.
    pub(crate) fn recall_for(&self, job: &Job<'_>, file: Handle) -> Result<(), Error> {
        let client = job.caller.holder.map(|holder| holder.client);
        self.recall(client, file, Delegation::Write)
    }

    /// Notes a change of a directory's entries, of which the request holds one.
    pub(crate) fn change_entries(
        &self,
        draft: &mut Draft,
        directory: Handle,
        loaded: &Loaded,
    ) -> files::ChangeInfo {
        self.make_live(directory, loaded);
        let now = self.now();
        let (before, change, bound) = self.with_live(directory, |live| {
            let before = live.inode.attributes;
            let change = live.touch(now);
            let bound = live.needs_mark().then(|| live.next_bound());
            (before, change, bound)
        });
        draft.touched(directory, before);
        draft.unchanged(directory, loaded);
        if let Some(bound) = bound {
            draft.mark(directory, bound);
        }
        change
    }
}

/// Another object of the same volume.
pub(crate) fn beside(object: Handle, file: files::FileId) -> Handle {
    Handle { file, ..object }
}
