//! READDIR.

use files::{Answer, DirEntry, Handle, Request};

use crate::server::compound::{Compound, put};
use crate::server::handles::Place;
use crate::wire::*;
use crate::xdr::Encoder;

use super::getattr::Described;

/// Bytes of a result around its entries: operation, status, verifier, end of the list, end of the
/// directory.
const FRAME: usize = 24;

/// The least that a client's answer must have room for: one entry with the longest name and all its
/// attributes fits.
const LEAST: usize = 1024;

impl Compound<'_> {
    /// READDIR (RFC 8881, section 18.23).
    pub(super) async fn readdir(&self, of: &Readdir4Args, out: &mut Encoder) -> Nfsstat4 {
        let begin = out.size();
        match self.list(of, out).await {
            Ok(()) => Nfsstat4::NFS4_OK,
            Err(status) => {
                out.truncate(begin);
                put::<()>(out, NfsOpnum4::OP_READDIR, Err(status))
            }
        }
    }

    async fn list(&self, of: &Readdir4Args, out: &mut Encoder) -> Result<(), Nfsstat4> {
        let place = self.place()?;
        if !of.attr_request.and(&WRITE_ONLY).is_empty() {
            return Err(Nfsstat4::NFS4ERR_INVAL);
        }
        // 1 and 2 are for `.` and `..`, which no server lists.
        if matches!(of.cookie, 1 | 2) {
            return Err(Nfsstat4::NFS4ERR_BAD_COOKIE);
        }
        if of.cookie != 0 && of.cookieverf != VERIFIER {
            return Err(Nfsstat4::NFS4ERR_NOT_SAME);
        }
        let size = (of.maxcount as usize).min(self.room(out));
        let room = size.checked_sub(FRAME).ok_or(Nfsstat4::NFS4ERR_TOOSMALL)?;
        self.reserve(size).await?;
        out.put(&NfsOpnum4::OP_READDIR);
        out.put(&Nfsstat4::NFS4_OK);
        out.put(&VERIFIER);
        let mut page = Page {
            end: out.size() + room,
            is_empty: true,
        };
        let is_end = match place {
            Place::Pseudo(node) => self.list_pseudo(node, of, &mut page, out).await?,
            Place::Object(directory) => self.list_object(directory, of, &mut page, out).await?,
        };
        if page.is_empty && !is_end {
            return Err(Nfsstat4::NFS4ERR_TOOSMALL);
        }
        out.put(&false);
        out.put(&is_end);
        Ok(())
    }

    async fn list_pseudo(
        &self,
        node: u32,
        of: &Readdir4Args,
        page: &mut Page,
        out: &mut Encoder,
    ) -> Result<bool, Nfsstat4> {
        let after = of.cookie.saturating_sub(2) as usize;
        for (cookie, name, place) in self.door.exports.entries(node, after) {
            let described = match place {
                Place::Pseudo(node) => self.describe_pseudo(node),
                Place::Object(root) => {
                    let caller = match self.caller(root) {
                        Ok(caller) => caller,
                        // It is not exported to this client.
                        Err(_) => continue,
                    };
                    let request = Request::GetAttributes(root);
                    let Answer::Attributes(of_root) = self.ask(&caller, request).await? else {
                        return Err(Nfsstat4::NFS4ERR_SERVERFAULT);
                    };
                    self.describe_object(root, of_root, &of.attr_request)
                        .await?
                }
            };
            if !page.put(cookie, &name, Some(&described), &of.attr_request, out) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    async fn list_object(
        &self,
        directory: Handle,
        of: &Readdir4Args,
        page: &mut Page,
        out: &mut Encoder,
    ) -> Result<bool, Nfsstat4> {
        let caller = self.caller(directory)?;
        let mut cookie = of.cookie;
        loop {
            // What is asked for may be more than fits, with its attributes.
            let left = page.end.saturating_sub(out.size()).max(LEAST);
            let request = Request::ReadDirectory {
                directory,
                cookie,
                bytes_max: left.min(64 << 10) as u32,
                attributes: !of.attr_request.is_empty(),
            };
            let Answer::Entries { entries, is_end } = self.ask(&caller, request).await? else {
                return Err(Nfsstat4::NFS4ERR_SERVERFAULT);
            };
            if entries.is_empty() {
                return Ok(true);
            }
            for (at, entry) in entries.iter().enumerate() {
                let described = match self.entry(directory, entry, &of.attr_request).await {
                    Ok(described) => described,
                    // It has gone since it was listed. Of a READDIR this would be the directory.
                    Err(Nfsstat4::NFS4ERR_STALE) => {
                        cookie = entry.cookie;
                        continue;
                    }
                    Err(status) => {
                        self.want_back_all(directory, &entries[at..], status);
                        // What is told already is worth telling.
                        return if page.is_empty {
                            Err(status)
                        } else {
                            Ok(false)
                        };
                    }
                };
                if !page.put(
                    entry.cookie,
                    &entry.name,
                    described.as_ref(),
                    &of.attr_request,
                    out,
                ) {
                    return Ok(false);
                }
                cookie = entry.cookie;
            }
            if is_end {
                return Ok(true);
            }
        }
    }

    /// A client has not said what it has written into the first of some entries: it is not asked about
    /// the others that it writes, one after the other, but has to give them all back.
    fn want_back_all(&self, directory: Handle, entries: &[DirEntry], status: Nfsstat4) {
        let writer = |entry: &DirEntry| {
            let object = Handle {
                file: entry.file,
                ..directory
            };
            let writer = self.door.states.borrow().writer(object, self.client);
            writer.map(|(_, client, _)| (client, object))
        };
        let silent = entries.first().and_then(writer).map(|(client, _)| client);
        let Some(silent) = silent.filter(|_| status == Nfsstat4::NFS4ERR_DELAY) else {
            return;
        };
        for (client, object) in entries.iter().filter_map(writer) {
            if client == silent {
                self.door.want_back(client, object);
            }
        }
    }

    async fn entry(
        &self,
        directory: Handle,
        entry: &DirEntry,
        wanted: &Bitmap4,
    ) -> Result<Option<Described>, Nfsstat4> {
        let Some(of) = entry.attributes else {
            // They are for who may search the directory. Who asks for no attributes misses none.
            let is_told = wanted.is_empty() || wanted.has(FATTR4_RDATTR_ERROR);
            return is_told.then_some(None).ok_or(Nfsstat4::NFS4ERR_ACCESS);
        };
        let object = Handle {
            volume: directory.volume,
            file: entry.file,
        };
        self.describe_object(object, of, wanted).await.map(Some)
    }
}

/// Cookies hold for ever: the same verifier always.
const VERIFIER: Verifier4 = *b"vervain1";

/// What of an answer's room is left for entries.
struct Page {
    /// Where the answer must end, but for its frame.
    end: usize,
    is_empty: bool,
}

impl Page {
    /// Puts an entry if there is room for it.
    fn put(
        &mut self,
        cookie: u64,
        name: &[u8],
        described: Option<&Described>,
        wanted: &Bitmap4,
        out: &mut Encoder,
    ) -> bool {
        let begin = out.size();
        out.put(&true);
        out.put(&cookie);
        out.opaque(name);
        match described {
            Some(described) => described.put(wanted, out),
            // Why there are none (RFC 8881, section 5.8.1.12).
            None => put_attributes(out, wanted, |number| {
                let status = Nfsstat4::NFS4ERR_ACCESS;
                (number == FATTR4_RDATTR_ERROR).then_some(Attribute::RdattrError(status))
            }),
        }
        if out.size() > self.end {
            out.truncate(begin);
            return false;
        }
        self.is_empty = false;
        true
    }
}
