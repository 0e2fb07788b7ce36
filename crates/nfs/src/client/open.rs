//! An open file: bytes of it by their places.

use crate::wire::*;
use crate::xdr::{Opaque, from_bytes};

use super::paths::{attributes, put_handle};
use super::{Client, ClientError};

/// How a file is opened.
#[derive(Clone, Copy, Debug)]
pub struct OpenHow<'a> {
    /// Whose open it is: what the same owner has open of a file is one open, and servers carry out an owner's
    /// opens one after the other.
    pub owner: &'a [u8],
    /// Whether it is read.
    pub read: bool,
    /// Whether it is written.
    pub write: bool,
    /// Makes the file with these permission bits if it is not there, and empties it if it is.
    pub create: Option<u32>,
}

/// A file that is open.
pub struct OpenFile {
    client: Client,
    handle: Vec<u8>,
    stateid: Stateid4,
}

impl OpenFile {
    /// Opens a file of a directory, which is given by its handle. One round trip.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn open(
        client: &Client,
        directory: &[u8],
        name: &str,
        how: &OpenHow<'_>,
    ) -> Result<Self, ClientError> {
        Self::open_from(client, vec![put_handle(directory)], name, how).await
    }

    /// Opens a file of the directory that some operations lead to.
    pub(super) async fn open_from<'a>(
        client: &Client,
        mut operations: Vec<NfsArgop4<'a>>,
        name: &'a str,
        how: &'a OpenHow<'_>,
    ) -> Result<Self, ClientError> {
        let created = how
            .create
            .map(|mode| attributes(&[Attribute::Size(0), Attribute::Mode(mode)]));
        let access = |wanted, bit| if wanted { bit } else { 0 };
        operations.push(NfsArgop4::Open(Open4Args {
            seqid: 0,
            share_access: access(how.read, OPEN4_SHARE_ACCESS_READ)
                | access(how.write, OPEN4_SHARE_ACCESS_WRITE)
                | OPEN4_SHARE_ACCESS_WANT_NO_DELEG,
            share_deny: OPEN4_SHARE_DENY_NONE,
            owner: StateOwner4 {
                clientid: client.id(),
                owner: Opaque(how.owner),
            },
            openhow: match &created {
                Some(created) => {
                    Openflag4::Open4Create(Createhow4::Unchecked4(from_bytes(created)?))
                }
                None => Openflag4::Default(Opentype4::OPEN4_NOCREATE),
            },
            claim: OpenClaim4::ClaimNull(Opaque(name.as_bytes())),
        }));
        operations.push(NfsArgop4::Getfh);
        let reply = client.call(&operations).await?;
        let (mut stateid, mut handle) = (None, None);
        for result in reply.ok()?.results()? {
            match result? {
                NfsResop4::Open(Ok(opened)) => stateid = Some(opened.stateid),
                NfsResop4::Getfh(Ok(got)) => handle = Some(got.object.to_vec()),
                _ => {}
            }
        }
        match (stateid, handle) {
            (Some(stateid), Some(handle)) => Ok(Self {
                client: client.clone(),
                handle,
                stateid,
            }),
            _ => Err(ClientError::Unexpected),
        }
    }

    /// The file's handle.
    #[must_use]
    pub fn handle(&self) -> &[u8] {
        &self.handle
    }

    /// Reads so many bytes, or fewer at the file's end; returns how many there were, and whether they are the last.
    /// They are lent from the answer.
    ///
    /// # Errors
    /// [`ClientError`], and those of whoever takes the bytes.
    pub async fn read_at<E: From<ClientError>>(
        &self,
        offset: u64,
        count: u32,
        take: impl AsyncFnOnce(&[u8]) -> Result<(), E>,
    ) -> Result<(u64, bool), E> {
        let operations = [
            put_handle(&self.handle),
            NfsArgop4::Read(Read4Args {
                stateid: self.stateid.clone(),
                offset,
                count,
            }),
        ];
        let reply = self.client.call(&operations).await?;
        let Some(Ok(NfsResop4::Read(Ok(got)))) = reply.ok()?.results()?.last() else {
            return Err(ClientError::Unexpected.into());
        };
        take(&got.data).await?;
        Ok((got.data.len() as u64, got.eof))
    }

    /// Writes bytes; returns how many the server has taken, at least one, and its verifier.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn write_at(
        &self,
        offset: u64,
        data: &[u8],
        stable: StableHow4,
    ) -> Result<(usize, Verifier4), ClientError> {
        let operations = [
            put_handle(&self.handle),
            NfsArgop4::Write(Write4Args {
                stateid: self.stateid.clone(),
                offset,
                stable,
                data: Opaque(data),
            }),
        ];
        let reply = self.client.call(&operations).await?;
        let Some(Ok(NfsResop4::Write(Ok(done)))) = reply.ok()?.results()?.last() else {
            return Err(ClientError::Unexpected);
        };
        let count = done.count as usize;
        // Less durable than was asked for is the server's error (RFC 8881, section 18.32.3).
        if !(1..=data.len()).contains(&count) || done.committed < stable {
            return Err(ClientError::Unexpected);
        }
        Ok((count, done.writeverf))
    }

    /// Makes all that was written durable; returns the server's verifier. If it is another one than a write had, that
    /// write may be lost.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn commit(&self) -> Result<Verifier4, ClientError> {
        let operations = [
            put_handle(&self.handle),
            NfsArgop4::Commit(Commit4Args {
                offset: 0,
                count: 0,
            }),
        ];
        let reply = self.client.call(&operations).await?;
        match reply.ok()?.results()?.last() {
            Some(Ok(NfsResop4::Commit(Ok(done)))) => Ok(done.writeverf),
            _ => Err(ClientError::Unexpected),
        }
    }

    /// Closes it.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn close(self) -> Result<(), ClientError> {
        let operations = [
            put_handle(&self.handle),
            NfsArgop4::Close(Close4Args {
                seqid: 0,
                open_stateid: self.stateid.clone(),
            }),
        ];
        self.client.call(&operations).await?.ok().map(drop)
    }
}
