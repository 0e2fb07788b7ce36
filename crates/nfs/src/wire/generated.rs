//! Written by `cargo x xdr` from the RFCs' descriptions in `x/`, whose notices apply: Copyright (c)
//! 2016, 2017 IETF Trust and the persons identified as the authors. All rights reserved.

use super::Bitmap4;
use crate::rpc::AuthSys;
use crate::xdr::{Chain, Decode, Decoder, Encode, Encoder, Opaque, XdrError};

xdr_constants! {
    AUTH_NONE: u32 = 0;
    AUTH_SYS: u32 = 1;
    RPCSEC_GSS: u32 = 6;
    NFS4_FHSIZE: u32 = 128;
    NFS4_VERIFIER_SIZE: u32 = 8;
    NFS4_OTHER_SIZE: u32 = 12;
    NFS4_OPAQUE_LIMIT: u32 = 1024;
    NFS4_SESSIONID_SIZE: u32 = 16;
    NFS4_INT64_MAX: u64 = 0x7fffffffffffffff;
    NFS4_UINT64_MAX: u64 = 0xffffffffffffffff;
    NFS4_INT32_MAX: u32 = 0x7fffffff;
    NFS4_UINT32_MAX: u32 = 0xffffffff;
    NFS4_MAXFILELEN: u64 = 0xffffffffffffffff;
    NFS4_MAXFILEOFF: u64 = 0xfffffffffffffffe;
    ACL4_SUPPORT_ALLOW_ACL: u32 = 1;
    ACL4_SUPPORT_DENY_ACL: u32 = 2;
    ACL4_SUPPORT_AUDIT_ACL: u32 = 4;
    ACL4_SUPPORT_ALARM_ACL: u32 = 8;
    ACE4_ACCESS_ALLOWED_ACE_TYPE: u32 = 0;
    ACE4_ACCESS_DENIED_ACE_TYPE: u32 = 1;
    ACE4_SYSTEM_AUDIT_ACE_TYPE: u32 = 2;
    ACE4_SYSTEM_ALARM_ACE_TYPE: u32 = 3;
    ACE4_FILE_INHERIT_ACE: u32 = 1;
    ACE4_DIRECTORY_INHERIT_ACE: u32 = 2;
    ACE4_NO_PROPAGATE_INHERIT_ACE: u32 = 4;
    ACE4_INHERIT_ONLY_ACE: u32 = 8;
    ACE4_SUCCESSFUL_ACCESS_ACE_FLAG: u32 = 16;
    ACE4_FAILED_ACCESS_ACE_FLAG: u32 = 32;
    ACE4_IDENTIFIER_GROUP: u32 = 64;
    ACE4_INHERITED_ACE: u32 = 128;
    ACE4_READ_DATA: u32 = 1;
    ACE4_LIST_DIRECTORY: u32 = 1;
    ACE4_WRITE_DATA: u32 = 2;
    ACE4_ADD_FILE: u32 = 2;
    ACE4_APPEND_DATA: u32 = 4;
    ACE4_ADD_SUBDIRECTORY: u32 = 4;
    ACE4_READ_NAMED_ATTRS: u32 = 8;
    ACE4_WRITE_NAMED_ATTRS: u32 = 16;
    ACE4_EXECUTE: u32 = 32;
    ACE4_DELETE_CHILD: u32 = 64;
    ACE4_READ_ATTRIBUTES: u32 = 128;
    ACE4_WRITE_ATTRIBUTES: u32 = 256;
    ACE4_WRITE_RETENTION: u32 = 512;
    ACE4_WRITE_RETENTION_HOLD: u32 = 1024;
    ACE4_DELETE: u32 = 65536;
    ACE4_READ_ACL: u32 = 0x20000;
    ACE4_WRITE_ACL: u32 = 0x40000;
    ACE4_WRITE_OWNER: u32 = 0x80000;
    ACE4_SYNCHRONIZE: u32 = 0x100000;
    ACE4_GENERIC_READ: u32 = 0x120081;
    ACE4_GENERIC_WRITE: u32 = 0x160106;
    ACE4_GENERIC_EXECUTE: u32 = 0x1200a0;
    ACL4_AUTO_INHERIT: u32 = 1;
    ACL4_PROTECTED: u32 = 2;
    ACL4_DEFAULTED: u32 = 4;
    MODE4_SUID: u32 = 2048;
    MODE4_SGID: u32 = 1024;
    MODE4_SVTX: u32 = 512;
    MODE4_RUSR: u32 = 256;
    MODE4_WUSR: u32 = 128;
    MODE4_XUSR: u32 = 64;
    MODE4_RGRP: u32 = 32;
    MODE4_WGRP: u32 = 16;
    MODE4_XGRP: u32 = 8;
    MODE4_ROTH: u32 = 4;
    MODE4_WOTH: u32 = 2;
    MODE4_XOTH: u32 = 1;
    FH4_PERSISTENT: u32 = 0;
    FH4_NOEXPIRE_WITH_OPEN: u32 = 1;
    FH4_VOLATILE_ANY: u32 = 2;
    FH4_VOL_MIGRATION: u32 = 4;
    FH4_VOL_RENAME: u32 = 8;
    NFS4_DEVICEID4_SIZE: u32 = 16;
    LAYOUT4_RET_REC_FILE: u32 = 1;
    LAYOUT4_RET_REC_FSID: u32 = 2;
    LAYOUT4_RET_REC_ALL: u32 = 3;
    TH4_READ_SIZE: u32 = 0;
    TH4_WRITE_SIZE: u32 = 1;
    TH4_READ_IOSIZE: u32 = 2;
    TH4_WRITE_IOSIZE: u32 = 3;
    RET4_DURATION_INFINITE: u64 = 0xffffffffffffffff;
    FSCHARSET_CAP4_CONTAINS_NON_UTF8: u32 = 1;
    FSCHARSET_CAP4_ALLOWS_ONLY_UTF8: u32 = 2;
    FATTR4_SUPPORTED_ATTRS: u32 = 0;
    FATTR4_TYPE: u32 = 1;
    FATTR4_FH_EXPIRE_TYPE: u32 = 2;
    FATTR4_CHANGE: u32 = 3;
    FATTR4_SIZE: u32 = 4;
    FATTR4_LINK_SUPPORT: u32 = 5;
    FATTR4_SYMLINK_SUPPORT: u32 = 6;
    FATTR4_NAMED_ATTR: u32 = 7;
    FATTR4_FSID: u32 = 8;
    FATTR4_UNIQUE_HANDLES: u32 = 9;
    FATTR4_LEASE_TIME: u32 = 10;
    FATTR4_RDATTR_ERROR: u32 = 11;
    FATTR4_FILEHANDLE: u32 = 19;
    FATTR4_SUPPATTR_EXCLCREAT: u32 = 75;
    FATTR4_ACL: u32 = 12;
    FATTR4_ACLSUPPORT: u32 = 13;
    FATTR4_ARCHIVE: u32 = 14;
    FATTR4_CANSETTIME: u32 = 15;
    FATTR4_CASE_INSENSITIVE: u32 = 16;
    FATTR4_CASE_PRESERVING: u32 = 17;
    FATTR4_CHOWN_RESTRICTED: u32 = 18;
    FATTR4_FILEID: u32 = 20;
    FATTR4_FILES_AVAIL: u32 = 21;
    FATTR4_FILES_FREE: u32 = 22;
    FATTR4_FILES_TOTAL: u32 = 23;
    FATTR4_FS_LOCATIONS: u32 = 24;
    FATTR4_HIDDEN: u32 = 25;
    FATTR4_HOMOGENEOUS: u32 = 26;
    FATTR4_MAXFILESIZE: u32 = 27;
    FATTR4_MAXLINK: u32 = 28;
    FATTR4_MAXNAME: u32 = 29;
    FATTR4_MAXREAD: u32 = 30;
    FATTR4_MAXWRITE: u32 = 31;
    FATTR4_MIMETYPE: u32 = 32;
    FATTR4_MODE: u32 = 33;
    FATTR4_NO_TRUNC: u32 = 34;
    FATTR4_NUMLINKS: u32 = 35;
    FATTR4_OWNER: u32 = 36;
    FATTR4_OWNER_GROUP: u32 = 37;
    FATTR4_QUOTA_AVAIL_HARD: u32 = 38;
    FATTR4_QUOTA_AVAIL_SOFT: u32 = 39;
    FATTR4_QUOTA_USED: u32 = 40;
    FATTR4_RAWDEV: u32 = 41;
    FATTR4_SPACE_AVAIL: u32 = 42;
    FATTR4_SPACE_FREE: u32 = 43;
    FATTR4_SPACE_TOTAL: u32 = 44;
    FATTR4_SPACE_USED: u32 = 45;
    FATTR4_SYSTEM: u32 = 46;
    FATTR4_TIME_ACCESS: u32 = 47;
    FATTR4_TIME_ACCESS_SET: u32 = 48;
    FATTR4_TIME_BACKUP: u32 = 49;
    FATTR4_TIME_CREATE: u32 = 50;
    FATTR4_TIME_DELTA: u32 = 51;
    FATTR4_TIME_METADATA: u32 = 52;
    FATTR4_TIME_MODIFY: u32 = 53;
    FATTR4_TIME_MODIFY_SET: u32 = 54;
    FATTR4_MOUNTED_ON_FILEID: u32 = 55;
    FATTR4_DIR_NOTIF_DELAY: u32 = 56;
    FATTR4_DIRENT_NOTIF_DELAY: u32 = 57;
    FATTR4_DACL: u32 = 58;
    FATTR4_SACL: u32 = 59;
    FATTR4_CHANGE_POLICY: u32 = 60;
    FATTR4_FS_STATUS: u32 = 61;
    FATTR4_FS_LAYOUT_TYPES: u32 = 62;
    FATTR4_LAYOUT_HINT: u32 = 63;
    FATTR4_LAYOUT_TYPES: u32 = 64;
    FATTR4_LAYOUT_BLKSIZE: u32 = 65;
    FATTR4_LAYOUT_ALIGNMENT: u32 = 66;
    FATTR4_FS_LOCATIONS_INFO: u32 = 67;
    FATTR4_MDSTHRESHOLD: u32 = 68;
    FATTR4_RETENTION_GET: u32 = 69;
    FATTR4_RETENTION_SET: u32 = 70;
    FATTR4_RETENTEVT_GET: u32 = 71;
    FATTR4_RETENTEVT_SET: u32 = 72;
    FATTR4_RETENTION_HOLD: u32 = 73;
    FATTR4_MODE_SET_MASKED: u32 = 74;
    FATTR4_FS_CHARSET_CAP: u32 = 76;
    FATTR4_CLONE_BLKSIZE: u32 = 77;
    FATTR4_SPACE_FREED: u32 = 78;
    FATTR4_CHANGE_ATTR_TYPE: u32 = 79;
    FATTR4_SEC_LABEL: u32 = 80;
    FSLI4BX_GFLAGS: u32 = 0;
    FSLI4BX_TFLAGS: u32 = 1;
    FSLI4BX_CLSIMUL: u32 = 2;
    FSLI4BX_CLHANDLE: u32 = 3;
    FSLI4BX_CLFILEID: u32 = 4;
    FSLI4BX_CLWRITEVER: u32 = 5;
    FSLI4BX_CLCHANGE: u32 = 6;
    FSLI4BX_CLREADDIR: u32 = 7;
    FSLI4BX_READRANK: u32 = 8;
    FSLI4BX_WRITERANK: u32 = 9;
    FSLI4BX_READORDER: u32 = 10;
    FSLI4BX_WRITEORDER: u32 = 11;
    FSLI4GF_WRITABLE: u32 = 1;
    FSLI4GF_CUR_REQ: u32 = 2;
    FSLI4GF_ABSENT: u32 = 4;
    FSLI4GF_GOING: u32 = 8;
    FSLI4GF_SPLIT: u32 = 16;
    FSLI4TF_RDMA: u32 = 1;
    FSLI4IF_VAR_SUB: u32 = 1;
    NFL4_UFLG_MASK: u32 = 63;
    NFL4_UFLG_DENSE: u32 = 1;
    NFL4_UFLG_COMMIT_THRU_MDS: u32 = 2;
    NFL42_UFLG_IO_ADVISE_THRU_MDS: u32 = 4;
    NFL4_UFLG_STRIPE_UNIT_SIZE_MASK: u32 = 0xffffffc0;
    ACCESS4_READ: u32 = 1;
    ACCESS4_LOOKUP: u32 = 2;
    ACCESS4_MODIFY: u32 = 4;
    ACCESS4_EXTEND: u32 = 8;
    ACCESS4_DELETE: u32 = 16;
    ACCESS4_EXECUTE: u32 = 32;
    OPEN4_SHARE_ACCESS_READ: u32 = 1;
    OPEN4_SHARE_ACCESS_WRITE: u32 = 2;
    OPEN4_SHARE_ACCESS_BOTH: u32 = 3;
    OPEN4_SHARE_DENY_NONE: u32 = 0;
    OPEN4_SHARE_DENY_READ: u32 = 1;
    OPEN4_SHARE_DENY_WRITE: u32 = 2;
    OPEN4_SHARE_DENY_BOTH: u32 = 3;
    OPEN4_SHARE_ACCESS_WANT_DELEG_MASK: u32 = 65280;
    OPEN4_SHARE_ACCESS_WANT_NO_PREFERENCE: u32 = 0;
    OPEN4_SHARE_ACCESS_WANT_READ_DELEG: u32 = 256;
    OPEN4_SHARE_ACCESS_WANT_WRITE_DELEG: u32 = 512;
    OPEN4_SHARE_ACCESS_WANT_ANY_DELEG: u32 = 768;
    OPEN4_SHARE_ACCESS_WANT_NO_DELEG: u32 = 1024;
    OPEN4_SHARE_ACCESS_WANT_CANCEL: u32 = 1280;
    OPEN4_SHARE_ACCESS_WANT_SIGNAL_DELEG_WHEN_RESRC_AVAIL: u32 = 65536;
    OPEN4_SHARE_ACCESS_WANT_PUSH_DELEG_WHEN_UNCONTENDED: u32 = 0x20000;
    OPEN4_RESULT_CONFIRM: u32 = 2;
    OPEN4_RESULT_LOCKTYPE_POSIX: u32 = 4;
    OPEN4_RESULT_PRESERVE_UNLINKED: u32 = 8;
    OPEN4_RESULT_MAY_NOTIFY_LOCK: u32 = 32;
    EXCHGID4_FLAG_SUPP_MOVED_REFER: u32 = 1;
    EXCHGID4_FLAG_SUPP_MOVED_MIGR: u32 = 2;
    EXCHGID4_FLAG_SUPP_FENCE_OPS: u32 = 4;
    EXCHGID4_FLAG_BIND_PRINC_STATEID: u32 = 256;
    EXCHGID4_FLAG_USE_NON_PNFS: u32 = 65536;
    EXCHGID4_FLAG_USE_PNFS_MDS: u32 = 0x20000;
    EXCHGID4_FLAG_USE_PNFS_DS: u32 = 0x40000;
    EXCHGID4_FLAG_MASK_PNFS: u32 = 0x70000;
    EXCHGID4_FLAG_UPD_CONFIRMED_REC_A: u32 = 0x40000000;
    EXCHGID4_FLAG_CONFIRMED_R: u32 = 0x80000000;
    CREATE_SESSION4_FLAG_PERSIST: u32 = 1;
    CREATE_SESSION4_FLAG_CONN_BACK_CHAN: u32 = 2;
    CREATE_SESSION4_FLAG_CONN_RDMA: u32 = 4;
    SEQ4_STATUS_CB_PATH_DOWN: u32 = 1;
    SEQ4_STATUS_CB_GSS_CONTEXTS_EXPIRING: u32 = 2;
    SEQ4_STATUS_CB_GSS_CONTEXTS_EXPIRED: u32 = 4;
    SEQ4_STATUS_EXPIRED_ALL_STATE_REVOKED: u32 = 8;
    SEQ4_STATUS_EXPIRED_SOME_STATE_REVOKED: u32 = 16;
    SEQ4_STATUS_ADMIN_STATE_REVOKED: u32 = 32;
    SEQ4_STATUS_RECALLABLE_STATE_REVOKED: u32 = 64;
    SEQ4_STATUS_LEASE_MOVED: u32 = 128;
    SEQ4_STATUS_RESTART_RECLAIM_NEEDED: u32 = 256;
    SEQ4_STATUS_CB_PATH_DOWN_SESSION: u32 = 512;
    SEQ4_STATUS_BACKCHANNEL_FAULT: u32 = 1024;
    SEQ4_STATUS_DEVID_CHANGED: u32 = 2048;
    SEQ4_STATUS_DEVID_DELETED: u32 = 4096;
    RCA4_TYPE_MASK_RDATA_DLG: u32 = 0;
    RCA4_TYPE_MASK_WDATA_DLG: u32 = 1;
    RCA4_TYPE_MASK_DIR_DLG: u32 = 2;
    RCA4_TYPE_MASK_FILE_LAYOUT: u32 = 3;
    RCA4_TYPE_MASK_BLK_LAYOUT: u32 = 4;
    RCA4_TYPE_MASK_OBJ_LAYOUT_MIN: u32 = 8;
    RCA4_TYPE_MASK_OBJ_LAYOUT_MAX: u32 = 9;
    RCA4_TYPE_MASK_OTHER_LAYOUT_MIN: u32 = 12;
    RCA4_TYPE_MASK_OTHER_LAYOUT_MAX: u32 = 15;
    ACCESS4_XAREAD: u32 = 64;
    ACCESS4_XAWRITE: u32 = 128;
    ACCESS4_XALIST: u32 = 256;
    FATTR4_XATTR_SUPPORT: u32 = 82;
    FATTR4_MODE_UMASK: u32 = 81;
}

xdr_enum! {
/// `nfs_ftype4`.
pub struct NfsFtype4 {
    NF4REG = 1,
    NF4DIR = 2,
    NF4BLK = 3,
    NF4CHR = 4,
    NF4LNK = 5,
    NF4SOCK = 6,
    NF4FIFO = 7,
    NF4ATTRDIR = 8,
    NF4NAMEDATTR = 9,
} }

xdr_enum! {
/// `nfsstat4`.
pub struct Nfsstat4 {
    NFS4_OK = 0,
    NFS4ERR_PERM = 1,
    NFS4ERR_NOENT = 2,
    NFS4ERR_IO = 5,
    NFS4ERR_NXIO = 6,
    NFS4ERR_ACCESS = 13,
    NFS4ERR_EXIST = 17,
    NFS4ERR_XDEV = 18,
    NFS4ERR_NOTDIR = 20,
    NFS4ERR_ISDIR = 21,
    NFS4ERR_INVAL = 22,
    NFS4ERR_FBIG = 27,
    NFS4ERR_NOSPC = 28,
    NFS4ERR_ROFS = 30,
    NFS4ERR_MLINK = 31,
    NFS4ERR_NAMETOOLONG = 63,
    NFS4ERR_NOTEMPTY = 66,
    NFS4ERR_DQUOT = 69,
    NFS4ERR_STALE = 70,
    NFS4ERR_BADHANDLE = 10001,
    NFS4ERR_BAD_COOKIE = 10003,
    NFS4ERR_NOTSUPP = 10004,
    NFS4ERR_TOOSMALL = 10005,
    NFS4ERR_SERVERFAULT = 10006,
    NFS4ERR_BADTYPE = 10007,
    NFS4ERR_DELAY = 10008,
    NFS4ERR_SAME = 10009,
    NFS4ERR_DENIED = 10010,
    NFS4ERR_EXPIRED = 10011,
    NFS4ERR_LOCKED = 10012,
    NFS4ERR_GRACE = 10013,
    NFS4ERR_FHEXPIRED = 10014,
    NFS4ERR_SHARE_DENIED = 10015,
    NFS4ERR_WRONGSEC = 10016,
    NFS4ERR_CLID_INUSE = 10017,
    NFS4ERR_RESOURCE = 10018,
    NFS4ERR_MOVED = 10019,
    NFS4ERR_NOFILEHANDLE = 10020,
    NFS4ERR_MINOR_VERS_MISMATCH = 10021,
    NFS4ERR_STALE_CLIENTID = 10022,
    NFS4ERR_STALE_STATEID = 10023,
    NFS4ERR_OLD_STATEID = 10024,
    NFS4ERR_BAD_STATEID = 10025,
    NFS4ERR_BAD_SEQID = 10026,
    NFS4ERR_NOT_SAME = 10027,
    NFS4ERR_LOCK_RANGE = 10028,
    NFS4ERR_SYMLINK = 10029,
    NFS4ERR_RESTOREFH = 10030,
    NFS4ERR_LEASE_MOVED = 10031,
    NFS4ERR_ATTRNOTSUPP = 10032,
    NFS4ERR_NO_GRACE = 10033,
    NFS4ERR_RECLAIM_BAD = 10034,
    NFS4ERR_RECLAIM_CONFLICT = 10035,
    NFS4ERR_BADXDR = 10036,
    NFS4ERR_LOCKS_HELD = 10037,
    NFS4ERR_OPENMODE = 10038,
    NFS4ERR_BADOWNER = 10039,
    NFS4ERR_BADCHAR = 10040,
    NFS4ERR_BADNAME = 10041,
    NFS4ERR_BAD_RANGE = 10042,
    NFS4ERR_LOCK_NOTSUPP = 10043,
    NFS4ERR_OP_ILLEGAL = 10044,
    NFS4ERR_DEADLOCK = 10045,
    NFS4ERR_FILE_OPEN = 10046,
    NFS4ERR_ADMIN_REVOKED = 10047,
    NFS4ERR_CB_PATH_DOWN = 10048,
    NFS4ERR_BADIOMODE = 10049,
    NFS4ERR_BADLAYOUT = 10050,
    NFS4ERR_BAD_SESSION_DIGEST = 10051,
    NFS4ERR_BADSESSION = 10052,
    NFS4ERR_BADSLOT = 10053,
    NFS4ERR_COMPLETE_ALREADY = 10054,
    NFS4ERR_CONN_NOT_BOUND_TO_SESSION = 10055,
    NFS4ERR_DELEG_ALREADY_WANTED = 10056,
    NFS4ERR_BACK_CHAN_BUSY = 10057,
    NFS4ERR_LAYOUTTRYLATER = 10058,
    NFS4ERR_LAYOUTUNAVAILABLE = 10059,
    NFS4ERR_NOMATCHING_LAYOUT = 10060,
    NFS4ERR_RECALLCONFLICT = 10061,
    NFS4ERR_UNKNOWN_LAYOUTTYPE = 10062,
    NFS4ERR_SEQ_MISORDERED = 10063,
    NFS4ERR_SEQUENCE_POS = 10064,
    NFS4ERR_REQ_TOO_BIG = 10065,
    NFS4ERR_REP_TOO_BIG = 10066,
    NFS4ERR_REP_TOO_BIG_TO_CACHE = 10067,
    NFS4ERR_RETRY_UNCACHED_REP = 10068,
    NFS4ERR_UNSAFE_COMPOUND = 10069,
    NFS4ERR_TOO_MANY_OPS = 10070,
    NFS4ERR_OP_NOT_IN_SESSION = 10071,
    NFS4ERR_HASH_ALG_UNSUPP = 10072,
    NFS4ERR_CLIENTID_BUSY = 10074,
    NFS4ERR_PNFS_IO_HOLE = 10075,
    NFS4ERR_SEQ_FALSE_RETRY = 10076,
    NFS4ERR_BAD_HIGH_SLOT = 10077,
    NFS4ERR_DEADSESSION = 10078,
    NFS4ERR_ENCR_ALG_UNSUPP = 10079,
    NFS4ERR_PNFS_NO_LAYOUT = 10080,
    NFS4ERR_NOT_ONLY_OP = 10081,
    NFS4ERR_WRONG_CRED = 10082,
    NFS4ERR_WRONG_TYPE = 10083,
    NFS4ERR_DIRDELEG_UNAVAIL = 10084,
    NFS4ERR_REJECT_DELEG = 10085,
    NFS4ERR_RETURNCONFLICT = 10086,
    NFS4ERR_DELEG_REVOKED = 10087,
    NFS4ERR_PARTNER_NOTSUPP = 10088,
    NFS4ERR_PARTNER_NO_AUTH = 10089,
    NFS4ERR_UNION_NOTSUPP = 10090,
    NFS4ERR_OFFLOAD_DENIED = 10091,
    NFS4ERR_WRONG_LFS = 10092,
    NFS4ERR_BADLABEL = 10093,
    NFS4ERR_OFFLOAD_NO_REQS = 10094,
    NFS4ERR_NOXATTR = 10095,
    NFS4ERR_XATTR2BIG = 10096,
} }

/// `attrlist4`.
pub type Attrlist4<'a> = Opaque<'a>;

/// `changeid4`.
pub type Changeid4 = u64;

/// `clientid4`.
pub type Clientid4 = u64;

/// `count4`.
pub type Count4 = u32;

/// `length4`.
pub type Length4 = u64;

/// `mode4`.
pub type Mode4 = u32;

/// `nfs_cookie4`.
pub type NfsCookie4 = u64;

/// `nfs_fh4`.
pub type NfsFh4<'a> = Opaque<'a, 128>;

/// `offset4`.
pub type Offset4 = u64;

/// `qop4`.
pub type Qop4 = u32;

/// `sec_oid4`.
pub type SecOid4<'a> = Opaque<'a>;

/// `sequenceid4`.
pub type Sequenceid4 = u32;

/// `seqid4`.
pub type Seqid4 = u32;

/// `sessionid4`.
pub type Sessionid4 = [u8; 16];

/// `slotid4`.
pub type Slotid4 = u32;

/// `utf8string`.
pub type Utf8String<'a> = Opaque<'a>;

/// `utf8str_cis`.
pub type Utf8StrCis<'a> = Utf8String<'a>;

/// `utf8str_cs`.
pub type Utf8StrCs<'a> = Utf8String<'a>;

/// `utf8str_mixed`.
pub type Utf8StrMixed<'a> = Utf8String<'a>;

/// `component4`.
pub type Component4<'a> = Utf8StrCs<'a>;

/// `linktext4`.
pub type Linktext4<'a> = Opaque<'a>;

/// `ascii_REQUIRED4`.
pub type AsciiRequired4<'a> = Utf8String<'a>;

/// `pathname4`.
pub type Pathname4<'a> = Vec<Component4<'a>>;

/// `verifier4`.
pub type Verifier4 = [u8; 8];

/// `secret4`.
pub type Secret4<'a> = Opaque<'a>;

/// `policy4`.
pub type Policy4 = u32;

xdr_struct! {
/// `nfstime4`.
pub struct Nfstime4 {
    seconds: i64,
    nseconds: u32,
} }

xdr_enum! {
/// `time_how4`.
pub struct TimeHow4 {
    SET_TO_SERVER_TIME4 = 0,
    SET_TO_CLIENT_TIME4 = 1,
} }

xdr_union! {
/// `settime4`.
pub enum Settime4 by TimeHow4 {
    1 SetToClientTime4(Nfstime4),
    else Default(TimeHow4),
} }

/// `nfs_lease4`.
pub type NfsLease4 = u32;

xdr_struct! {
/// `fsid4`.
pub struct Fsid4 {
    major: u64,
    minor: u64,
} }

xdr_struct! {
/// `change_policy4`.
pub struct ChangePolicy4 {
    cp_major: u64,
    cp_minor: u64,
} }

xdr_struct! {
/// `fs_location4`.
pub struct FsLocation4<'a> {
    server: Vec<Utf8StrCis<'a>>,
    rootpath: Pathname4<'a>,
} }

xdr_struct! {
/// `fs_locations4`.
pub struct FsLocations4<'a> {
    fs_root: Pathname4<'a>,
    locations: Vec<FsLocation4<'a>>,
} }

/// `acetype4`.
pub type Acetype4 = u32;

/// `aceflag4`.
pub type Aceflag4 = u32;

/// `acemask4`.
pub type Acemask4 = u32;

xdr_struct! {
/// `nfsace4`.
pub struct Nfsace4<'a> {
    r#type: Acetype4,
    flag: Aceflag4,
    access_mask: Acemask4,
    who: Utf8StrMixed<'a>,
} }

/// `aclflag4`.
pub type Aclflag4 = u32;

xdr_struct! {
/// `nfsacl41`.
pub struct Nfsacl41<'a> {
    na41_flag: Aclflag4,
    na41_aces: Vec<Nfsace4<'a>>,
} }

xdr_struct! {
/// `mode_masked4`.
pub struct ModeMasked4 {
    mm_value_to_set: Mode4,
    mm_mask_bits: Mode4,
} }

xdr_struct! {
/// `specdata4`.
pub struct Specdata4 {
    specdata1: u32,
    specdata2: u32,
} }

xdr_struct! {
/// `netaddr4`.
pub struct Netaddr4<'a> {
    na_r_netid: Opaque<'a>,
    na_r_addr: Opaque<'a>,
} }

xdr_struct! {
/// `nfs_impl_id4`.
pub struct NfsImplId4<'a> {
    nii_domain: Utf8StrCis<'a>,
    nii_name: Utf8StrCs<'a>,
    nii_date: Nfstime4,
} }

xdr_struct! {
/// `stateid4`.
pub struct Stateid4 {
    seqid: u32,
    other: [u8; 12],
} }

xdr_enum! {
/// `layouttype4`.
pub struct Layouttype4 {
    LAYOUT4_NFSV4_1_FILES = 1,
    LAYOUT4_OSD2_OBJECTS = 2,
    LAYOUT4_BLOCK_VOLUME = 3,
} }

xdr_struct! {
/// `layout_content4`.
pub struct LayoutContent4<'a> {
    loc_type: Layouttype4,
    loc_body: Opaque<'a>,
} }

xdr_struct! {
/// `layouthint4`.
pub struct Layouthint4<'a> {
    loh_type: Layouttype4,
    loh_body: Opaque<'a>,
} }

xdr_enum! {
/// `layoutiomode4`.
pub struct Layoutiomode4 {
    LAYOUTIOMODE4_READ = 1,
    LAYOUTIOMODE4_RW = 2,
    LAYOUTIOMODE4_ANY = 3,
} }

xdr_struct! {
/// `layout4`.
pub struct Layout4<'a> {
    lo_offset: Offset4,
    lo_length: Length4,
    lo_iomode: Layoutiomode4,
    lo_content: LayoutContent4<'a>,
} }

/// `deviceid4`.
pub type Deviceid4 = [u8; 16];

xdr_struct! {
/// `device_addr4`.
pub struct DeviceAddr4<'a> {
    da_layout_type: Layouttype4,
    da_addr_body: Opaque<'a>,
} }

xdr_struct! {
/// `layoutupdate4`.
pub struct Layoutupdate4<'a> {
    lou_type: Layouttype4,
    lou_body: Opaque<'a>,
} }

xdr_enum! {
/// `layoutreturn_type4`.
pub struct LayoutreturnType4 {
    LAYOUTRETURN4_FILE = 1,
    LAYOUTRETURN4_FSID = 2,
    LAYOUTRETURN4_ALL = 3,
} }

xdr_struct! {
/// `layoutreturn_file4`.
pub struct LayoutreturnFile4<'a> {
    lrf_offset: Offset4,
    lrf_length: Length4,
    lrf_stateid: Stateid4,
    lrf_body: Opaque<'a>,
} }

xdr_union! {
/// `layoutreturn4`.
pub enum Layoutreturn4<'a> by LayoutreturnType4 {
    1 Layoutreturn4File(LayoutreturnFile4<'a>),
    else Default(LayoutreturnType4),
} }

xdr_enum! {
/// `fs4_status_type`.
pub struct Fs4StatusType {
    STATUS4_FIXED = 1,
    STATUS4_UPDATED = 2,
    STATUS4_VERSIONED = 3,
    STATUS4_WRITABLE = 4,
    STATUS4_REFERRAL = 5,
} }

xdr_struct! {
/// `fs4_status`.
pub struct Fs4Status<'a> {
    fss_absent: bool,
    fss_type: Fs4StatusType,
    fss_source: Utf8StrCs<'a>,
    fss_current: Utf8StrCs<'a>,
    fss_age: i32,
    fss_version: Nfstime4,
} }

/// `threshold4_read_size`.
pub type Threshold4ReadSize = Length4;

/// `threshold4_write_size`.
pub type Threshold4WriteSize = Length4;

/// `threshold4_read_iosize`.
pub type Threshold4ReadIosize = Length4;

/// `threshold4_write_iosize`.
pub type Threshold4WriteIosize = Length4;

xdr_struct! {
/// `threshold_item4`.
pub struct ThresholdItem4<'a> {
    thi_layout_type: Layouttype4,
    thi_hintset: Bitmap4,
    thi_hintlist: Opaque<'a>,
} }

xdr_struct! {
/// `mdsthreshold4`.
pub struct Mdsthreshold4<'a> {
    mth_hints: Vec<ThresholdItem4<'a>>,
} }

xdr_struct! {
/// `retention_get4`.
pub struct RetentionGet4 {
    rg_duration: u64,
    rg_begin_time: Option<Nfstime4>,
} }

xdr_struct! {
/// `retention_set4`.
pub struct RetentionSet4 {
    rs_enable: bool,
    rs_duration: Option<u64>,
} }

/// `fs_charset_cap4`.
pub type FsCharsetCap4 = u32;

xdr_enum! {
/// `netloc_type4`.
pub struct NetlocType4 {
    NL4_NAME = 1,
    NL4_URL = 2,
    NL4_NETADDR = 3,
} }

xdr_union! {
/// `netloc4`.
pub enum Netloc4<'a> by NetlocType4 {
    1 Nl4Name(Utf8StrCis<'a>),
    2 Nl4Url(Utf8StrCis<'a>),
    3 Nl4Netaddr(Netaddr4<'a>),
} }

xdr_enum! {
/// `change_attr_type4`.
pub struct ChangeAttrType4 {
    NFS4_CHANGE_TYPE_IS_MONOTONIC_INCR = 0,
    NFS4_CHANGE_TYPE_IS_VERSION_COUNTER = 1,
    NFS4_CHANGE_TYPE_IS_VERSION_COUNTER_NOPNFS = 2,
    NFS4_CHANGE_TYPE_IS_TIME_METADATA = 3,
    NFS4_CHANGE_TYPE_IS_UNDEFINED = 4,
} }

xdr_struct! {
/// `labelformat_spec4`.
pub struct LabelformatSpec4 {
    lfs_lfs: Policy4,
    lfs_pi: Policy4,
} }

xdr_struct! {
/// `sec_label4`.
pub struct SecLabel4<'a> {
    slai_lfs: LabelformatSpec4,
    slai_data: Opaque<'a>,
} }

xdr_struct! {
/// `copy_from_auth_priv`.
pub struct CopyFromAuthPriv<'a> {
    cfap_shared_secret: Secret4<'a>,
    cfap_destination: Netloc4<'a>,
    cfap_username: Utf8StrMixed<'a>,
} }

xdr_struct! {
/// `copy_to_auth_priv`.
pub struct CopyToAuthPriv<'a> {
    ctap_shared_secret: Secret4<'a>,
    ctap_source: Vec<Netloc4<'a>>,
    ctap_username: Utf8StrMixed<'a>,
} }

xdr_struct! {
/// `copy_confirm_auth_priv`.
pub struct CopyConfirmAuthPriv<'a> {
    ccap_shared_secret_mic: Opaque<'a>,
    ccap_username: Utf8StrMixed<'a>,
} }

xdr_struct! {
/// `app_data_block4`.
pub struct AppDataBlock4<'a> {
    adb_offset: Offset4,
    adb_block_size: Length4,
    adb_block_count: Length4,
    adb_reloff_blocknum: Length4,
    adb_block_num: Count4,
    adb_reloff_pattern: Length4,
    adb_pattern: Opaque<'a>,
} }

xdr_struct! {
/// `data4`.
pub struct Data4<'a> {
    d_offset: Offset4,
    d_data: Opaque<'a>,
} }

xdr_struct! {
/// `data_info4`.
pub struct DataInfo4 {
    di_offset: Offset4,
    di_length: Length4,
} }

xdr_enum! {
/// `data_content4`.
pub struct DataContent4 {
    NFS4_CONTENT_DATA = 0,
    NFS4_CONTENT_HOLE = 1,
} }

xdr_enum! {
/// `stable_how4`.
pub struct StableHow4 {
    UNSTABLE4 = 0,
    DATA_SYNC4 = 1,
    FILE_SYNC4 = 2,
} }

xdr_struct! {
/// `write_response4`.
pub struct WriteResponse4 {
    wr_callback_id: Option<Stateid4>,
    wr_count: Length4,
    wr_committed: StableHow4,
    wr_writeverf: Verifier4,
} }

/// `fattr4_supported_attrs`.
pub type Fattr4SupportedAttrs = Bitmap4;

/// `fattr4_type`.
pub type Fattr4Type = NfsFtype4;

/// `fattr4_fh_expire_type`.
pub type Fattr4FhExpireType = u32;

/// `fattr4_change`.
pub type Fattr4Change = Changeid4;

/// `fattr4_size`.
pub type Fattr4Size = u64;

/// `fattr4_link_support`.
pub type Fattr4LinkSupport = bool;

/// `fattr4_symlink_support`.
pub type Fattr4SymlinkSupport = bool;

/// `fattr4_named_attr`.
pub type Fattr4NamedAttr = bool;

/// `fattr4_fsid`.
pub type Fattr4Fsid = Fsid4;

/// `fattr4_unique_handles`.
pub type Fattr4UniqueHandles = bool;

/// `fattr4_lease_time`.
pub type Fattr4LeaseTime = NfsLease4;

/// `fattr4_rdattr_error`.
pub type Fattr4RdattrError = Nfsstat4;

/// `fattr4_acl`.
pub type Fattr4Acl<'a> = Vec<Nfsace4<'a>>;

/// `fattr4_aclsupport`.
pub type Fattr4Aclsupport = u32;

/// `fattr4_archive`.
pub type Fattr4Archive = bool;

/// `fattr4_cansettime`.
pub type Fattr4Cansettime = bool;

/// `fattr4_case_insensitive`.
pub type Fattr4CaseInsensitive = bool;

/// `fattr4_case_preserving`.
pub type Fattr4CasePreserving = bool;

/// `fattr4_chown_restricted`.
pub type Fattr4ChownRestricted = bool;

/// `fattr4_fileid`.
pub type Fattr4Fileid = u64;

/// `fattr4_files_avail`.
pub type Fattr4FilesAvail = u64;

/// `fattr4_filehandle`.
pub type Fattr4Filehandle<'a> = NfsFh4<'a>;

/// `fattr4_files_free`.
pub type Fattr4FilesFree = u64;

/// `fattr4_files_total`.
pub type Fattr4FilesTotal = u64;

/// `fattr4_fs_locations`.
pub type Fattr4FsLocations<'a> = FsLocations4<'a>;

/// `fattr4_hidden`.
pub type Fattr4Hidden = bool;

/// `fattr4_homogeneous`.
pub type Fattr4Homogeneous = bool;

/// `fattr4_maxfilesize`.
pub type Fattr4Maxfilesize = u64;

/// `fattr4_maxlink`.
pub type Fattr4Maxlink = u32;

/// `fattr4_maxname`.
pub type Fattr4Maxname = u32;

/// `fattr4_maxread`.
pub type Fattr4Maxread = u64;

/// `fattr4_maxwrite`.
pub type Fattr4Maxwrite = u64;

/// `fattr4_mimetype`.
pub type Fattr4Mimetype<'a> = AsciiRequired4<'a>;

/// `fattr4_mode`.
pub type Fattr4Mode = Mode4;

/// `fattr4_mode_set_masked`.
pub type Fattr4ModeSetMasked = ModeMasked4;

/// `fattr4_mounted_on_fileid`.
pub type Fattr4MountedOnFileid = u64;

/// `fattr4_no_trunc`.
pub type Fattr4NoTrunc = bool;

/// `fattr4_numlinks`.
pub type Fattr4Numlinks = u32;

/// `fattr4_owner`.
pub type Fattr4Owner<'a> = Utf8StrMixed<'a>;

/// `fattr4_owner_group`.
pub type Fattr4OwnerGroup<'a> = Utf8StrMixed<'a>;

/// `fattr4_quota_avail_hard`.
pub type Fattr4QuotaAvailHard = u64;

/// `fattr4_quota_avail_soft`.
pub type Fattr4QuotaAvailSoft = u64;

/// `fattr4_quota_used`.
pub type Fattr4QuotaUsed = u64;

/// `fattr4_rawdev`.
pub type Fattr4Rawdev = Specdata4;

/// `fattr4_space_avail`.
pub type Fattr4SpaceAvail = u64;

/// `fattr4_space_free`.
pub type Fattr4SpaceFree = Length4;

/// `fattr4_space_total`.
pub type Fattr4SpaceTotal = u64;

/// `fattr4_space_used`.
pub type Fattr4SpaceUsed = u64;

/// `fattr4_system`.
pub type Fattr4System = bool;

/// `fattr4_time_access`.
pub type Fattr4TimeAccess = Nfstime4;

/// `fattr4_time_access_set`.
pub type Fattr4TimeAccessSet = Settime4;

/// `fattr4_time_backup`.
pub type Fattr4TimeBackup = Nfstime4;

/// `fattr4_time_create`.
pub type Fattr4TimeCreate = Nfstime4;

/// `fattr4_time_delta`.
pub type Fattr4TimeDelta = Nfstime4;

/// `fattr4_time_metadata`.
pub type Fattr4TimeMetadata = Nfstime4;

/// `fattr4_time_modify`.
pub type Fattr4TimeModify = Nfstime4;

/// `fattr4_time_modify_set`.
pub type Fattr4TimeModifySet = Settime4;

/// `fattr4_suppattr_exclcreat`.
pub type Fattr4SuppattrExclcreat = Bitmap4;

/// `fattr4_dir_notif_delay`.
pub type Fattr4DirNotifDelay = Nfstime4;

/// `fattr4_dirent_notif_delay`.
pub type Fattr4DirentNotifDelay = Nfstime4;

/// `fattr4_fs_layout_types`.
pub type Fattr4FsLayoutTypes = Vec<Layouttype4>;

/// `fattr4_fs_status`.
pub type Fattr4FsStatus<'a> = Fs4Status<'a>;

/// `fattr4_fs_charset_cap`.
pub type Fattr4FsCharsetCap = FsCharsetCap4;

/// `fattr4_layout_alignment`.
pub type Fattr4LayoutAlignment = u32;

/// `fattr4_layout_blksize`.
pub type Fattr4LayoutBlksize = u32;

/// `fattr4_layout_hint`.
pub type Fattr4LayoutHint<'a> = Layouthint4<'a>;

/// `fattr4_layout_types`.
pub type Fattr4LayoutTypes = Vec<Layouttype4>;

/// `fattr4_mdsthreshold`.
pub type Fattr4Mdsthreshold<'a> = Mdsthreshold4<'a>;

/// `fattr4_retention_get`.
pub type Fattr4RetentionGet = RetentionGet4;

/// `fattr4_retention_set`.
pub type Fattr4RetentionSet = RetentionSet4;

/// `fattr4_retentevt_get`.
pub type Fattr4RetentevtGet = RetentionGet4;

/// `fattr4_retentevt_set`.
pub type Fattr4RetentevtSet = RetentionSet4;

/// `fattr4_retention_hold`.
pub type Fattr4RetentionHold = u64;

/// `fattr4_dacl`.
pub type Fattr4Dacl<'a> = Nfsacl41<'a>;

/// `fattr4_sacl`.
pub type Fattr4Sacl<'a> = Nfsacl41<'a>;

/// `fattr4_change_policy`.
pub type Fattr4ChangePolicy = ChangePolicy4;

/// `fattr4_space_freed`.
pub type Fattr4SpaceFreed = u64;

/// `fattr4_change_attr_type`.
pub type Fattr4ChangeAttrType = ChangeAttrType4;

/// `fattr4_sec_label`.
pub type Fattr4SecLabel<'a> = SecLabel4<'a>;

/// `fattr4_clone_blksize`.
pub type Fattr4CloneBlksize = u32;

xdr_struct! {
/// `fattr4`.
pub struct Fattr4<'a> {
    attrmask: Bitmap4,
    attr_vals: Attrlist4<'a>,
} }

xdr_struct! {
/// `change_info4`.
pub struct ChangeInfo4 {
    atomic: bool,
    before: Changeid4,
    after: Changeid4,
} }

/// `clientaddr4`.
pub type Clientaddr4<'a> = Netaddr4<'a>;

xdr_struct! {
/// `cb_client4`.
pub struct CbClient4<'a> {
    cb_program: u32,
    cb_location: Netaddr4<'a>,
} }

xdr_struct! {
/// `nfs_client_id4`.
pub struct NfsClientId4<'a> {
    verifier: Verifier4,
    id: Opaque<'a, 1024>,
} }

xdr_struct! {
/// `client_owner4`.
pub struct ClientOwner4<'a> {
    co_verifier: Verifier4,
    co_ownerid: Opaque<'a, 1024>,
} }

xdr_struct! {
/// `server_owner4`.
pub struct ServerOwner4<'a> {
    so_minor_id: u64,
    so_major_id: Opaque<'a, 1024>,
} }

xdr_struct! {
/// `state_owner4`.
pub struct StateOwner4<'a> {
    clientid: Clientid4,
    owner: Opaque<'a, 1024>,
} }

/// `open_owner4`.
pub type OpenOwner4<'a> = StateOwner4<'a>;

/// `lock_owner4`.
pub type LockOwner4<'a> = StateOwner4<'a>;

xdr_enum! {
/// `nfs_lock_type4`.
pub struct NfsLockType4 {
    READ_LT = 1,
    WRITE_LT = 2,
    READW_LT = 3,
    WRITEW_LT = 4,
} }

xdr_enum! {
/// `ssv_subkey4`.
pub struct SsvSubkey4 {
    SSV4_SUBKEY_MIC_I2T = 1,
    SSV4_SUBKEY_MIC_T2I = 2,
    SSV4_SUBKEY_SEAL_I2T = 3,
    SSV4_SUBKEY_SEAL_T2I = 4,
} }

xdr_struct! {
/// `ssv_mic_plain_tkn4`.
pub struct SsvMicPlainTkn4<'a> {
    smpt_ssv_seq: u32,
    smpt_orig_plain: Opaque<'a>,
} }

xdr_struct! {
/// `ssv_mic_tkn4`.
pub struct SsvMicTkn4<'a> {
    smt_ssv_seq: u32,
    smt_hmac: Opaque<'a>,
} }

xdr_struct! {
/// `ssv_seal_plain_tkn4`.
pub struct SsvSealPlainTkn4<'a> {
    sspt_confounder: Opaque<'a>,
    sspt_ssv_seq: u32,
    sspt_orig_plain: Opaque<'a>,
    sspt_pad: Opaque<'a>,
} }

xdr_struct! {
/// `ssv_seal_cipher_tkn4`.
pub struct SsvSealCipherTkn4<'a> {
    ssct_ssv_seq: u32,
    ssct_iv: Opaque<'a>,
    ssct_encr_data: Opaque<'a>,
    ssct_hmac: Opaque<'a>,
} }

xdr_struct! {
/// `fs_locations_server4`.
pub struct FsLocationsServer4<'a> {
    fls_currency: i32,
    fls_info: Opaque<'a>,
    fls_server: Utf8StrCis<'a>,
} }

xdr_struct! {
/// `fs_locations_item4`.
pub struct FsLocationsItem4<'a> {
    fli_entries: Vec<FsLocationsServer4<'a>>,
    fli_rootpath: Pathname4<'a>,
} }

xdr_struct! {
/// `fs_locations_info4`.
pub struct FsLocationsInfo4<'a> {
    fli_flags: u32,
    fli_valid_for: i32,
    fli_fs_root: Pathname4<'a>,
    fli_items: Vec<FsLocationsItem4<'a>>,
} }

/// `fattr4_fs_locations_info`.
pub type Fattr4FsLocationsInfo<'a> = FsLocationsInfo4<'a>;

/// `nfl_util4`.
pub type NflUtil4 = u32;

xdr_enum! {
/// `filelayout_hint_care4`.
pub struct FilelayoutHintCare4 {
    NFLH4_CARE_DENSE = 1,
    NFLH4_CARE_COMMIT_THRU_MDS = 2,
    NFL42_CARE_IO_ADVISE_THRU_MDS = 4,
    NFLH4_CARE_STRIPE_UNIT_SIZE = 64,
    NFLH4_CARE_STRIPE_COUNT = 128,
} }

xdr_struct! {
/// `nfsv4_1_file_layouthint4`.
pub struct Nfsv41FileLayouthint4 {
    nflh_care: u32,
    nflh_util: NflUtil4,
    nflh_stripe_count: Count4,
} }

/// `multipath_list4`.
pub type MultipathList4<'a> = Vec<Netaddr4<'a>>;

xdr_struct! {
/// `nfsv4_1_file_layout_ds_addr4`.
pub struct Nfsv41FileLayoutDsAddr4<'a> {
    nflda_stripe_indices: Vec<u32>,
    nflda_multipath_ds_list: Vec<MultipathList4<'a>>,
} }

xdr_struct! {
/// `nfsv4_1_file_layout4`.
pub struct Nfsv41FileLayout4<'a> {
    nfl_deviceid: Deviceid4,
    nfl_util: NflUtil4,
    nfl_first_stripe_index: u32,
    nfl_pattern_offset: Offset4,
    nfl_fh_list: Vec<NfsFh4<'a>>,
} }

xdr_enum! {
/// `nfs_opnum4`.
pub struct NfsOpnum4 {
    OP_ACCESS = 3,
    OP_CLOSE = 4,
    OP_COMMIT = 5,
    OP_CREATE = 6,
    OP_DELEGPURGE = 7,
    OP_DELEGRETURN = 8,
    OP_GETATTR = 9,
    OP_GETFH = 10,
    OP_LINK = 11,
    OP_LOCK = 12,
    OP_LOCKT = 13,
    OP_LOCKU = 14,
    OP_LOOKUP = 15,
    OP_LOOKUPP = 16,
    OP_NVERIFY = 17,
    OP_OPEN = 18,
    OP_OPENATTR = 19,
    OP_OPEN_CONFIRM = 20,
    OP_OPEN_DOWNGRADE = 21,
    OP_PUTFH = 22,
    OP_PUTPUBFH = 23,
    OP_PUTROOTFH = 24,
    OP_READ = 25,
    OP_READDIR = 26,
    OP_READLINK = 27,
    OP_REMOVE = 28,
    OP_RENAME = 29,
    OP_RENEW = 30,
    OP_RESTOREFH = 31,
    OP_SAVEFH = 32,
    OP_SECINFO = 33,
    OP_SETATTR = 34,
    OP_SETCLIENTID = 35,
    OP_SETCLIENTID_CONFIRM = 36,
    OP_VERIFY = 37,
    OP_WRITE = 38,
    OP_RELEASE_LOCKOWNER = 39,
    OP_BACKCHANNEL_CTL = 40,
    OP_BIND_CONN_TO_SESSION = 41,
    OP_EXCHANGE_ID = 42,
    OP_CREATE_SESSION = 43,
    OP_DESTROY_SESSION = 44,
    OP_FREE_STATEID = 45,
    OP_GET_DIR_DELEGATION = 46,
    OP_GETDEVICEINFO = 47,
    OP_GETDEVICELIST = 48,
    OP_LAYOUTCOMMIT = 49,
    OP_LAYOUTGET = 50,
    OP_LAYOUTRETURN = 51,
    OP_SECINFO_NO_NAME = 52,
    OP_SEQUENCE = 53,
    OP_SET_SSV = 54,
    OP_TEST_STATEID = 55,
    OP_WANT_DELEGATION = 56,
    OP_DESTROY_CLIENTID = 57,
    OP_RECLAIM_COMPLETE = 58,
    OP_ALLOCATE = 59,
    OP_COPY = 60,
    OP_COPY_NOTIFY = 61,
    OP_DEALLOCATE = 62,
    OP_IO_ADVISE = 63,
    OP_LAYOUTERROR = 64,
    OP_LAYOUTSTATS = 65,
    OP_OFFLOAD_CANCEL = 66,
    OP_OFFLOAD_STATUS = 67,
    OP_READ_PLUS = 68,
    OP_SEEK = 69,
    OP_WRITE_SAME = 70,
    OP_CLONE = 71,
    OP_ILLEGAL = 10044,
    OP_GETXATTR = 72,
    OP_SETXATTR = 73,
    OP_LISTXATTRS = 74,
    OP_REMOVEXATTR = 75,
} }

xdr_struct! {
/// `ACCESS4args`.
pub struct Access4Args {
    access: u32,
} }

xdr_struct! {
/// `ACCESS4resok`.
pub struct Access4Resok {
    supported: u32,
    access: u32,
} }

/// `ACCESS4res`.
pub type Access4Res = Result<Access4Resok, Nfsstat4>;

xdr_struct! {
/// `CLONE4args`.
pub struct Clone4Args {
    cl_src_stateid: Stateid4,
    cl_dst_stateid: Stateid4,
    cl_src_offset: Offset4,
    cl_dst_offset: Offset4,
    cl_count: Length4,
} }

/// `CLONE4res`.
pub type Clone4Res = Result<(), Nfsstat4>;

xdr_struct! {
/// `CLOSE4args`.
pub struct Close4Args {
    seqid: Seqid4,
    open_stateid: Stateid4,
} }

/// `CLOSE4res`.
pub type Close4Res = Result<Stateid4, Nfsstat4>;

xdr_struct! {
/// `COMMIT4args`.
pub struct Commit4Args {
    offset: Offset4,
    count: Count4,
} }

xdr_struct! {
/// `COMMIT4resok`.
pub struct Commit4Resok {
    writeverf: Verifier4,
} }

/// `COMMIT4res`.
pub type Commit4Res = Result<Commit4Resok, Nfsstat4>;

xdr_union! {
/// `createtype4`.
pub enum Createtype4<'a> by NfsFtype4 {
    5 Nf4Lnk(Linktext4<'a>),
    3 Nf4Blk(Specdata4),
    4 Nf4Chr(Specdata4),
    6 Nf4Sock,
    7 Nf4Fifo,
    2 Nf4Dir,
    else Default(NfsFtype4),
} }

xdr_struct! {
/// `CREATE4args`.
pub struct Create4Args<'a> {
    objtype: Createtype4<'a>,
    objname: Component4<'a>,
    createattrs: Fattr4<'a>,
} }

xdr_struct! {
/// `CREATE4resok`.
pub struct Create4Resok {
    cinfo: ChangeInfo4,
    attrset: Bitmap4,
} }

/// `CREATE4res`.
pub type Create4Res = Result<Create4Resok, Nfsstat4>;

xdr_struct! {
/// `DELEGPURGE4args`.
pub struct Delegpurge4Args {
    clientid: Clientid4,
} }

/// `DELEGPURGE4res`.
pub type Delegpurge4Res = Result<(), Nfsstat4>;

xdr_struct! {
/// `DELEGRETURN4args`.
pub struct Delegreturn4Args {
    deleg_stateid: Stateid4,
} }

/// `DELEGRETURN4res`.
pub type Delegreturn4Res = Result<(), Nfsstat4>;

xdr_struct! {
/// `GETATTR4args`.
pub struct Getattr4Args {
    attr_request: Bitmap4,
} }

xdr_struct! {
/// `GETATTR4resok`.
pub struct Getattr4Resok<'a> {
    obj_attributes: Fattr4<'a>,
} }

/// `GETATTR4res`.
pub type Getattr4Res<'a> = Result<Getattr4Resok<'a>, Nfsstat4>;

xdr_struct! {
/// `GETFH4resok`.
pub struct Getfh4Resok<'a> {
    object: NfsFh4<'a>,
} }

/// `GETFH4res`.
pub type Getfh4Res<'a> = Result<Getfh4Resok<'a>, Nfsstat4>;

xdr_struct! {
/// `LINK4args`.
pub struct Link4Args<'a> {
    newname: Component4<'a>,
} }

xdr_struct! {
/// `LINK4resok`.
pub struct Link4Resok {
    cinfo: ChangeInfo4,
} }

/// `LINK4res`.
pub type Link4Res = Result<Link4Resok, Nfsstat4>;

xdr_struct! {
/// `open_to_lock_owner4`.
pub struct OpenToLockOwner4<'a> {
    open_seqid: Seqid4,
    open_stateid: Stateid4,
    lock_seqid: Seqid4,
    lock_owner: LockOwner4<'a>,
} }

xdr_struct! {
/// `exist_lock_owner4`.
pub struct ExistLockOwner4 {
    lock_stateid: Stateid4,
    lock_seqid: Seqid4,
} }

xdr_union! {
/// `locker4`.
pub enum Locker4<'a> by bool {
    1 OpenOwner(OpenToLockOwner4<'a>),
    0 LockOwner(ExistLockOwner4),
} }

xdr_struct! {
/// `LOCK4args`.
pub struct Lock4Args<'a> {
    locktype: NfsLockType4,
    reclaim: bool,
    offset: Offset4,
    length: Length4,
    locker: Locker4<'a>,
} }

xdr_struct! {
/// `LOCK4denied`.
pub struct Lock4Denied<'a> {
    offset: Offset4,
    length: Length4,
    locktype: NfsLockType4,
    owner: LockOwner4<'a>,
} }

xdr_struct! {
/// `LOCK4resok`.
pub struct Lock4Resok {
    lock_stateid: Stateid4,
} }

xdr_union! {
/// `LOCK4res`.
pub enum Lock4Res<'a> by Nfsstat4 {
    0 Nfs4Ok(Lock4Resok),
    10010 Nfs4ErrDenied(Lock4Denied<'a>),
    else Default(Nfsstat4),
} }

xdr_struct! {
/// `LOCKT4args`.
pub struct Lockt4Args<'a> {
    locktype: NfsLockType4,
    offset: Offset4,
    length: Length4,
    owner: LockOwner4<'a>,
} }

xdr_union! {
/// `LOCKT4res`.
pub enum Lockt4Res<'a> by Nfsstat4 {
    10010 Nfs4ErrDenied(Lock4Denied<'a>),
    0 Nfs4Ok,
    else Default(Nfsstat4),
} }

xdr_struct! {
/// `LOCKU4args`.
pub struct Locku4Args {
    locktype: NfsLockType4,
    seqid: Seqid4,
    lock_stateid: Stateid4,
    offset: Offset4,
    length: Length4,
} }

/// `LOCKU4res`.
pub type Locku4Res = Result<Stateid4, Nfsstat4>;

xdr_struct! {
/// `LOOKUP4args`.
pub struct Lookup4Args<'a> {
    objname: Component4<'a>,
} }

/// `LOOKUP4res`.
pub type Lookup4Res = Result<(), Nfsstat4>;

/// `LOOKUPP4res`.
pub type Lookupp4Res = Result<(), Nfsstat4>;

xdr_struct! {
/// `NVERIFY4args`.
pub struct Nverify4Args<'a> {
    obj_attributes: Fattr4<'a>,
} }

/// `NVERIFY4res`.
pub type Nverify4Res = Result<(), Nfsstat4>;

xdr_enum! {
/// `createmode4`.
pub struct Createmode4 {
    UNCHECKED4 = 0,
    GUARDED4 = 1,
    EXCLUSIVE4 = 2,
    EXCLUSIVE4_1 = 3,
} }

xdr_struct! {
/// `creatverfattr`.
pub struct Creatverfattr<'a> {
    cva_verf: Verifier4,
    cva_attrs: Fattr4<'a>,
} }

xdr_union! {
/// `createhow4`.
pub enum Createhow4<'a> by Createmode4 {
    0 Unchecked4(Fattr4<'a>),
    1 Guarded4(Fattr4<'a>),
    2 Exclusive4(Verifier4),
    3 Exclusive41(Creatverfattr<'a>),
} }

xdr_enum! {
/// `opentype4`.
pub struct Opentype4 {
    OPEN4_NOCREATE = 0,
    OPEN4_CREATE = 1,
} }

xdr_union! {
/// `openflag4`.
pub enum Openflag4<'a> by Opentype4 {
    1 Open4Create(Createhow4<'a>),
    else Default(Opentype4),
} }

xdr_enum! {
/// `limit_by4`.
pub struct LimitBy4 {
    NFS_LIMIT_SIZE = 1,
    NFS_LIMIT_BLOCKS = 2,
} }

xdr_struct! {
/// `nfs_modified_limit4`.
pub struct NfsModifiedLimit4 {
    num_blocks: u32,
    bytes_per_block: u32,
} }

xdr_union! {
/// `nfs_space_limit4`.
pub enum NfsSpaceLimit4 by LimitBy4 {
    1 NfsLimitSize(u64),
    2 NfsLimitBlocks(NfsModifiedLimit4),
} }

xdr_enum! {
/// `open_delegation_type4`.
pub struct OpenDelegationType4 {
    OPEN_DELEGATE_NONE = 0,
    OPEN_DELEGATE_READ = 1,
    OPEN_DELEGATE_WRITE = 2,
    OPEN_DELEGATE_NONE_EXT = 3,
} }

xdr_enum! {
/// `open_claim_type4`.
pub struct OpenClaimType4 {
    CLAIM_NULL = 0,
    CLAIM_PREVIOUS = 1,
    CLAIM_DELEGATE_CUR = 2,
    CLAIM_DELEGATE_PREV = 3,
    CLAIM_FH = 4,
    CLAIM_DELEG_CUR_FH = 5,
    CLAIM_DELEG_PREV_FH = 6,
} }

xdr_struct! {
/// `open_claim_delegate_cur4`.
pub struct OpenClaimDelegateCur4<'a> {
    delegate_stateid: Stateid4,
    file: Component4<'a>,
} }

xdr_union! {
/// `open_claim4`.
pub enum OpenClaim4<'a> by OpenClaimType4 {
    0 ClaimNull(Component4<'a>),
    1 ClaimPrevious(OpenDelegationType4),
    2 ClaimDelegateCur(OpenClaimDelegateCur4<'a>),
    3 ClaimDelegatePrev(Component4<'a>),
    4 ClaimFh,
    6 ClaimDelegPrevFh,
    5 ClaimDelegCurFh(Stateid4),
} }

xdr_struct! {
/// `OPEN4args`.
pub struct Open4Args<'a> {
    seqid: Seqid4,
    share_access: u32,
    share_deny: u32,
    owner: OpenOwner4<'a>,
    openhow: Openflag4<'a>,
    claim: OpenClaim4<'a>,
} }

xdr_struct! {
/// `open_read_delegation4`.
pub struct OpenReadDelegation4<'a> {
    stateid: Stateid4,
    recall: bool,
    permissions: Nfsace4<'a>,
} }

xdr_struct! {
/// `open_write_delegation4`.
pub struct OpenWriteDelegation4<'a> {
    stateid: Stateid4,
    recall: bool,
    space_limit: NfsSpaceLimit4,
    permissions: Nfsace4<'a>,
} }

xdr_enum! {
/// `why_no_delegation4`.
pub struct WhyNoDelegation4 {
    WND4_NOT_WANTED = 0,
    WND4_CONTENTION = 1,
    WND4_RESOURCE = 2,
    WND4_NOT_SUPP_FTYPE = 3,
    WND4_WRITE_DELEG_NOT_SUPP_FTYPE = 4,
    WND4_NOT_SUPP_UPGRADE = 5,
    WND4_NOT_SUPP_DOWNGRADE = 6,
    WND4_CANCELLED = 7,
    WND4_IS_DIR = 8,
} }

xdr_union! {
/// `open_none_delegation4`.
pub enum OpenNoneDelegation4 by WhyNoDelegation4 {
    1 Wnd4Contention(bool),
    2 Wnd4Resource(bool),
    else Default(WhyNoDelegation4),
} }

xdr_union! {
/// `open_delegation4`.
pub enum OpenDelegation4<'a> by OpenDelegationType4 {
    0 OpenDelegateNone,
    1 OpenDelegateRead(OpenReadDelegation4<'a>),
    2 OpenDelegateWrite(OpenWriteDelegation4<'a>),
    3 OpenDelegateNoneExt(OpenNoneDelegation4),
} }

xdr_struct! {
/// `OPEN4resok`.
pub struct Open4Resok<'a> {
    stateid: Stateid4,
    cinfo: ChangeInfo4,
    rflags: u32,
    attrset: Bitmap4,
    delegation: OpenDelegation4<'a>,
} }

/// `OPEN4res`.
pub type Open4Res<'a> = Result<Open4Resok<'a>, Nfsstat4>;

xdr_struct! {
/// `OPENATTR4args`.
pub struct Openattr4Args {
    createdir: bool,
} }

/// `OPENATTR4res`.
pub type Openattr4Res = Result<(), Nfsstat4>;

xdr_struct! {
/// `OPEN_CONFIRM4args`.
pub struct OpenConfirm4Args {
    open_stateid: Stateid4,
    seqid: Seqid4,
} }

xdr_struct! {
/// `OPEN_CONFIRM4resok`.
pub struct OpenConfirm4Resok {
    open_stateid: Stateid4,
} }

/// `OPEN_CONFIRM4res`.
pub type OpenConfirm4Res = Result<OpenConfirm4Resok, Nfsstat4>;

xdr_struct! {
/// `OPEN_DOWNGRADE4args`.
pub struct OpenDowngrade4Args {
    open_stateid: Stateid4,
    seqid: Seqid4,
    share_access: u32,
    share_deny: u32,
} }

xdr_struct! {
/// `OPEN_DOWNGRADE4resok`.
pub struct OpenDowngrade4Resok {
    open_stateid: Stateid4,
} }

/// `OPEN_DOWNGRADE4res`.
pub type OpenDowngrade4Res = Result<OpenDowngrade4Resok, Nfsstat4>;

xdr_struct! {
/// `PUTFH4args`.
pub struct Putfh4Args<'a> {
    object: NfsFh4<'a>,
} }

/// `PUTFH4res`.
pub type Putfh4Res = Result<(), Nfsstat4>;

/// `PUTPUBFH4res`.
pub type Putpubfh4Res = Result<(), Nfsstat4>;

/// `PUTROOTFH4res`.
pub type Putrootfh4Res = Result<(), Nfsstat4>;

xdr_struct! {
/// `READ4args`.
pub struct Read4Args {
    stateid: Stateid4,
    offset: Offset4,
    count: Count4,
} }

xdr_struct! {
/// `READ4resok`.
pub struct Read4Resok<'a> {
    eof: bool,
    data: Opaque<'a>,
} }

/// `READ4res`.
pub type Read4Res<'a> = Result<Read4Resok<'a>, Nfsstat4>;

xdr_struct! {
/// `READDIR4args`.
pub struct Readdir4Args {
    cookie: NfsCookie4,
    cookieverf: Verifier4,
    dircount: Count4,
    maxcount: Count4,
    attr_request: Bitmap4,
} }

xdr_struct! {
/// `entry4`.
pub struct Entry4<'a> {
    cookie: NfsCookie4,
    name: Component4<'a>,
    attrs: Fattr4<'a>,
} }

xdr_struct! {
/// `dirlist4`.
pub struct Dirlist4<'a> {
    entries: Chain<Entry4<'a>>,
    eof: bool,
} }

xdr_struct! {
/// `READDIR4resok`.
pub struct Readdir4Resok<'a> {
    cookieverf: Verifier4,
    reply: Dirlist4<'a>,
} }

/// `READDIR4res`.
pub type Readdir4Res<'a> = Result<Readdir4Resok<'a>, Nfsstat4>;

xdr_struct! {
/// `READLINK4resok`.
pub struct Readlink4Resok<'a> {
    link: Linktext4<'a>,
} }

/// `READLINK4res`.
pub type Readlink4Res<'a> = Result<Readlink4Resok<'a>, Nfsstat4>;

xdr_struct! {
/// `REMOVE4args`.
pub struct Remove4Args<'a> {
    target: Component4<'a>,
} }

xdr_struct! {
/// `REMOVE4resok`.
pub struct Remove4Resok {
    cinfo: ChangeInfo4,
} }

/// `REMOVE4res`.
pub type Remove4Res = Result<Remove4Resok, Nfsstat4>;

xdr_struct! {
/// `RENAME4args`.
pub struct Rename4Args<'a> {
    oldname: Component4<'a>,
    newname: Component4<'a>,
} }

xdr_struct! {
/// `RENAME4resok`.
pub struct Rename4Resok {
    source_cinfo: ChangeInfo4,
    target_cinfo: ChangeInfo4,
} }

/// `RENAME4res`.
pub type Rename4Res = Result<Rename4Resok, Nfsstat4>;

xdr_struct! {
/// `RENEW4args`.
pub struct Renew4Args {
    clientid: Clientid4,
} }

/// `RENEW4res`.
pub type Renew4Res = Result<(), Nfsstat4>;

/// `RESTOREFH4res`.
pub type Restorefh4Res = Result<(), Nfsstat4>;

/// `SAVEFH4res`.
pub type Savefh4Res = Result<(), Nfsstat4>;

xdr_struct! {
/// `SECINFO4args`.
pub struct Secinfo4Args<'a> {
    name: Component4<'a>,
} }

xdr_enum! {
/// `rpc_gss_svc_t`.
pub struct RpcGssSvcT {
    RPC_GSS_SVC_NONE = 1,
    RPC_GSS_SVC_INTEGRITY = 2,
    RPC_GSS_SVC_PRIVACY = 3,
} }

xdr_struct! {
/// `rpcsec_gss_info`.
pub struct RpcsecGssInfo<'a> {
    oid: SecOid4<'a>,
    qop: Qop4,
    service: RpcGssSvcT,
} }

xdr_union! {
/// `secinfo4`.
pub enum Secinfo4<'a> by u32 {
    6 RpcsecGss(RpcsecGssInfo<'a>),
    else Default(u32),
} }

/// `SECINFO4resok`.
pub type Secinfo4Resok<'a> = Vec<Secinfo4<'a>>;

/// `SECINFO4res`.
pub type Secinfo4Res<'a> = Result<Secinfo4Resok<'a>, Nfsstat4>;

xdr_struct! {
/// `SETATTR4args`.
pub struct Setattr4Args<'a> {
    stateid: Stateid4,
    obj_attributes: Fattr4<'a>,
} }

xdr_struct! {
/// `SETATTR4res`.
pub struct Setattr4Res {
    status: Nfsstat4,
    attrsset: Bitmap4,
} }

xdr_struct! {
/// `SETCLIENTID4args`.
pub struct Setclientid4Args<'a> {
    client: NfsClientId4<'a>,
    callback: CbClient4<'a>,
    callback_ident: u32,
} }

xdr_struct! {
/// `SETCLIENTID4resok`.
pub struct Setclientid4Resok {
    clientid: Clientid4,
    setclientid_confirm: Verifier4,
} }

xdr_union! {
/// `SETCLIENTID4res`.
pub enum Setclientid4Res<'a> by Nfsstat4 {
    0 Nfs4Ok(Setclientid4Resok),
    10017 Nfs4ErrClidInuse(Clientaddr4<'a>),
    else Default(Nfsstat4),
} }

xdr_struct! {
/// `SETCLIENTID_CONFIRM4args`.
pub struct SetclientidConfirm4Args {
    clientid: Clientid4,
    setclientid_confirm: Verifier4,
} }

/// `SETCLIENTID_CONFIRM4res`.
pub type SetclientidConfirm4Res = Result<(), Nfsstat4>;

xdr_struct! {
/// `VERIFY4args`.
pub struct Verify4Args<'a> {
    obj_attributes: Fattr4<'a>,
} }

/// `VERIFY4res`.
pub type Verify4Res = Result<(), Nfsstat4>;

xdr_struct! {
/// `WRITE4args`.
pub struct Write4Args<'a> {
    stateid: Stateid4,
    offset: Offset4,
    stable: StableHow4,
    data: Opaque<'a>,
} }

xdr_struct! {
/// `WRITE4resok`.
pub struct Write4Resok {
    count: Count4,
    committed: StableHow4,
    writeverf: Verifier4,
} }

/// `WRITE4res`.
pub type Write4Res = Result<Write4Resok, Nfsstat4>;

xdr_struct! {
/// `RELEASE_LOCKOWNER4args`.
pub struct ReleaseLockowner4Args<'a> {
    lock_owner: LockOwner4<'a>,
} }

/// `RELEASE_LOCKOWNER4res`.
pub type ReleaseLockowner4Res = Result<(), Nfsstat4>;

/// `ILLEGAL4res`.
pub type Illegal4Res = Result<(), Nfsstat4>;

/// `gsshandle4_t`.
pub type Gsshandle4T<'a> = Opaque<'a>;

xdr_struct! {
/// `gss_cb_handles4`.
pub struct GssCbHandles4<'a> {
    gcbp_service: RpcGssSvcT,
    gcbp_handle_from_server: Gsshandle4T<'a>,
    gcbp_handle_from_client: Gsshandle4T<'a>,
} }

xdr_union! {
/// `callback_sec_parms4`.
pub enum CallbackSecParms4<'a> by u32 {
    0 AuthNone,
    1 AuthSys(AuthSys<'a>),
    6 RpcsecGss(GssCbHandles4<'a>),
} }

xdr_struct! {
/// `BACKCHANNEL_CTL4args`.
pub struct BackchannelCtl4Args<'a> {
    bca_cb_program: u32,
    bca_sec_parms: Vec<CallbackSecParms4<'a>>,
} }

/// `BACKCHANNEL_CTL4res`.
pub type BackchannelCtl4Res = Result<(), Nfsstat4>;

xdr_enum! {
/// `channel_dir_from_client4`.
pub struct ChannelDirFromClient4 {
    CDFC4_FORE = 1,
    CDFC4_BACK = 2,
    CDFC4_FORE_OR_BOTH = 3,
    CDFC4_BACK_OR_BOTH = 7,
} }

xdr_struct! {
/// `BIND_CONN_TO_SESSION4args`.
pub struct BindConnToSession4Args {
    bctsa_sessid: Sessionid4,
    bctsa_dir: ChannelDirFromClient4,
    bctsa_use_conn_in_rdma_mode: bool,
} }

xdr_enum! {
/// `channel_dir_from_server4`.
pub struct ChannelDirFromServer4 {
    CDFS4_FORE = 1,
    CDFS4_BACK = 2,
    CDFS4_BOTH = 3,
} }

xdr_struct! {
/// `BIND_CONN_TO_SESSION4resok`.
pub struct BindConnToSession4Resok {
    bctsr_sessid: Sessionid4,
    bctsr_dir: ChannelDirFromServer4,
    bctsr_use_conn_in_rdma_mode: bool,
} }

/// `BIND_CONN_TO_SESSION4res`.
pub type BindConnToSession4Res = Result<BindConnToSession4Resok, Nfsstat4>;

xdr_struct! {
/// `state_protect_ops4`.
pub struct StateProtectOps4 {
    spo_must_enforce: Bitmap4,
    spo_must_allow: Bitmap4,
} }

xdr_struct! {
/// `ssv_sp_parms4`.
pub struct SsvSpParms4<'a> {
    ssp_ops: StateProtectOps4,
    ssp_hash_algs: Vec<SecOid4<'a>>,
    ssp_encr_algs: Vec<SecOid4<'a>>,
    ssp_window: u32,
    ssp_num_gss_handles: u32,
} }

xdr_enum! {
/// `state_protect_how4`.
pub struct StateProtectHow4 {
    SP4_NONE = 0,
    SP4_MACH_CRED = 1,
    SP4_SSV = 2,
} }

xdr_union! {
/// `state_protect4_a`.
pub enum StateProtect4A<'a> by StateProtectHow4 {
    0 Sp4None,
    1 Sp4MachCred(StateProtectOps4),
    2 Sp4Ssv(SsvSpParms4<'a>),
} }

xdr_struct! {
/// `EXCHANGE_ID4args`.
pub struct ExchangeId4Args<'a> {
    eia_clientowner: ClientOwner4<'a>,
    eia_flags: u32,
    eia_state_protect: StateProtect4A<'a>,
    eia_client_impl_id: Option<NfsImplId4<'a>>,
} }

xdr_struct! {
/// `ssv_prot_info4`.
pub struct SsvProtInfo4<'a> {
    spi_ops: StateProtectOps4,
    spi_hash_alg: u32,
    spi_encr_alg: u32,
    spi_ssv_len: u32,
    spi_window: u32,
    spi_handles: Vec<Gsshandle4T<'a>>,
} }

xdr_union! {
/// `state_protect4_r`.
pub enum StateProtect4R<'a> by StateProtectHow4 {
    0 Sp4None,
    1 Sp4MachCred(StateProtectOps4),
    2 Sp4Ssv(SsvProtInfo4<'a>),
} }

xdr_struct! {
/// `EXCHANGE_ID4resok`.
pub struct ExchangeId4Resok<'a> {
    eir_clientid: Clientid4,
    eir_sequenceid: Sequenceid4,
    eir_flags: u32,
    eir_state_protect: StateProtect4R<'a>,
    eir_server_owner: ServerOwner4<'a>,
    eir_server_scope: Opaque<'a, 1024>,
    eir_server_impl_id: Option<NfsImplId4<'a>>,
} }

/// `EXCHANGE_ID4res`.
pub type ExchangeId4Res<'a> = Result<ExchangeId4Resok<'a>, Nfsstat4>;

xdr_struct! {
/// `channel_attrs4`.
pub struct ChannelAttrs4 {
    ca_headerpadsize: Count4,
    ca_maxrequestsize: Count4,
    ca_maxresponsesize: Count4,
    ca_maxresponsesize_cached: Count4,
    ca_maxoperations: Count4,
    ca_maxrequests: Count4,
    ca_rdma_ird: Option<u32>,
} }

xdr_struct! {
/// `CREATE_SESSION4args`.
pub struct CreateSession4Args<'a> {
    csa_clientid: Clientid4,
    csa_sequence: Sequenceid4,
    csa_flags: u32,
    csa_fore_chan_attrs: ChannelAttrs4,
    csa_back_chan_attrs: ChannelAttrs4,
    csa_cb_program: u32,
    csa_sec_parms: Vec<CallbackSecParms4<'a>>,
} }

xdr_struct! {
/// `CREATE_SESSION4resok`.
pub struct CreateSession4Resok {
    csr_sessionid: Sessionid4,
    csr_sequence: Sequenceid4,
    csr_flags: u32,
    csr_fore_chan_attrs: ChannelAttrs4,
    csr_back_chan_attrs: ChannelAttrs4,
} }

/// `CREATE_SESSION4res`.
pub type CreateSession4Res = Result<CreateSession4Resok, Nfsstat4>;

xdr_struct! {
/// `DESTROY_SESSION4args`.
pub struct DestroySession4Args {
    dsa_sessionid: Sessionid4,
} }

/// `DESTROY_SESSION4res`.
pub type DestroySession4Res = Result<(), Nfsstat4>;

xdr_struct! {
/// `FREE_STATEID4args`.
pub struct FreeStateid4Args {
    fsa_stateid: Stateid4,
} }

/// `FREE_STATEID4res`.
pub type FreeStateid4Res = Result<(), Nfsstat4>;

/// `attr_notice4`.
pub type AttrNotice4 = Nfstime4;

xdr_struct! {
/// `GET_DIR_DELEGATION4args`.
pub struct GetDirDelegation4Args {
    gdda_signal_deleg_avail: bool,
    gdda_notification_types: Bitmap4,
    gdda_child_attr_delay: AttrNotice4,
    gdda_dir_attr_delay: AttrNotice4,
    gdda_child_attributes: Bitmap4,
    gdda_dir_attributes: Bitmap4,
} }

xdr_struct! {
/// `GET_DIR_DELEGATION4resok`.
pub struct GetDirDelegation4Resok {
    gddr_cookieverf: Verifier4,
    gddr_stateid: Stateid4,
    gddr_notification: Bitmap4,
    gddr_child_attributes: Bitmap4,
    gddr_dir_attributes: Bitmap4,
} }

xdr_enum! {
/// `gddrnf4_status`.
pub struct Gddrnf4Status {
    GDD4_OK = 0,
    GDD4_UNAVAIL = 1,
} }

xdr_union! {
/// `GET_DIR_DELEGATION4res_non_fatal`.
pub enum GetDirDelegation4ResNonFatal by Gddrnf4Status {
    0 Gdd4Ok(GetDirDelegation4Resok),
    1 Gdd4Unavail(bool),
} }

/// `GET_DIR_DELEGATION4res`.
pub type GetDirDelegation4Res = Result<GetDirDelegation4ResNonFatal, Nfsstat4>;

xdr_struct! {
/// `GETDEVICEINFO4args`.
pub struct Getdeviceinfo4Args {
    gdia_device_id: Deviceid4,
    gdia_layout_type: Layouttype4,
    gdia_maxcount: Count4,
    gdia_notify_types: Bitmap4,
} }

xdr_struct! {
/// `GETDEVICEINFO4resok`.
pub struct Getdeviceinfo4Resok<'a> {
    gdir_device_addr: DeviceAddr4<'a>,
    gdir_notification: Bitmap4,
} }

xdr_union! {
/// `GETDEVICEINFO4res`.
pub enum Getdeviceinfo4Res<'a> by Nfsstat4 {
    0 Nfs4Ok(Getdeviceinfo4Resok<'a>),
    10005 Nfs4ErrToosmall(Count4),
    else Default(Nfsstat4),
} }

xdr_struct! {
/// `GETDEVICELIST4args`.
pub struct Getdevicelist4Args {
    gdla_layout_type: Layouttype4,
    gdla_maxdevices: Count4,
    gdla_cookie: NfsCookie4,
    gdla_cookieverf: Verifier4,
} }

xdr_struct! {
/// `GETDEVICELIST4resok`.
pub struct Getdevicelist4Resok {
    gdlr_cookie: NfsCookie4,
    gdlr_cookieverf: Verifier4,
    gdlr_deviceid_list: Vec<Deviceid4>,
    gdlr_eof: bool,
} }

/// `GETDEVICELIST4res`.
pub type Getdevicelist4Res = Result<Getdevicelist4Resok, Nfsstat4>;

xdr_union! {
/// `newtime4`.
pub enum Newtime4 by bool {
    1 NtTime(Nfstime4),
    0 False,
} }

xdr_union! {
/// `newoffset4`.
pub enum Newoffset4 by bool {
    1 NoOffset(Offset4),
    0 False,
} }

xdr_struct! {
/// `LAYOUTCOMMIT4args`.
pub struct Layoutcommit4Args<'a> {
    loca_offset: Offset4,
    loca_length: Length4,
    loca_reclaim: bool,
    loca_stateid: Stateid4,
    loca_last_write_offset: Newoffset4,
    loca_time_modify: Newtime4,
    loca_layoutupdate: Layoutupdate4<'a>,
} }

xdr_union! {
/// `newsize4`.
pub enum Newsize4 by bool {
    1 NsSize(Length4),
    0 False,
} }

xdr_struct! {
/// `LAYOUTCOMMIT4resok`.
pub struct Layoutcommit4Resok {
    locr_newsize: Newsize4,
} }

/// `LAYOUTCOMMIT4res`.
pub type Layoutcommit4Res = Result<Layoutcommit4Resok, Nfsstat4>;

xdr_struct! {
/// `LAYOUTGET4args`.
pub struct Layoutget4Args {
    loga_signal_layout_avail: bool,
    loga_layout_type: Layouttype4,
    loga_iomode: Layoutiomode4,
    loga_offset: Offset4,
    loga_length: Length4,
    loga_minlength: Length4,
    loga_stateid: Stateid4,
    loga_maxcount: Count4,
} }

xdr_struct! {
/// `LAYOUTGET4resok`.
pub struct Layoutget4Resok<'a> {
    logr_return_on_close: bool,
    logr_stateid: Stateid4,
    logr_layout: Vec<Layout4<'a>>,
} }

xdr_union! {
/// `LAYOUTGET4res`.
pub enum Layoutget4Res<'a> by Nfsstat4 {
    0 Nfs4Ok(Layoutget4Resok<'a>),
    10058 Nfs4ErrLayouttrylater(bool),
    else Default(Nfsstat4),
} }

xdr_struct! {
/// `LAYOUTRETURN4args`.
pub struct Layoutreturn4Args<'a> {
    lora_reclaim: bool,
    lora_layout_type: Layouttype4,
    lora_iomode: Layoutiomode4,
    lora_layoutreturn: Layoutreturn4<'a>,
} }

xdr_union! {
/// `layoutreturn_stateid`.
pub enum LayoutreturnStateid by bool {
    1 LrsStateid(Stateid4),
    0 False,
} }

/// `LAYOUTRETURN4res`.
pub type Layoutreturn4Res = Result<LayoutreturnStateid, Nfsstat4>;

xdr_enum! {
/// `secinfo_style4`.
pub struct SecinfoStyle4 {
    SECINFO_STYLE4_CURRENT_FH = 0,
    SECINFO_STYLE4_PARENT = 1,
} }

/// `SECINFO_NO_NAME4args`.
pub type SecinfoNoName4Args = SecinfoStyle4;

/// `SECINFO_NO_NAME4res`.
pub type SecinfoNoName4Res<'a> = Secinfo4Res<'a>;

xdr_struct! {
/// `SEQUENCE4args`.
pub struct Sequence4Args {
    sa_sessionid: Sessionid4,
    sa_sequenceid: Sequenceid4,
    sa_slotid: Slotid4,
    sa_highest_slotid: Slotid4,
    sa_cachethis: bool,
} }

xdr_struct! {
/// `SEQUENCE4resok`.
pub struct Sequence4Resok {
    sr_sessionid: Sessionid4,
    sr_sequenceid: Sequenceid4,
    sr_slotid: Slotid4,
    sr_highest_slotid: Slotid4,
    sr_target_highest_slotid: Slotid4,
    sr_status_flags: u32,
} }

/// `SEQUENCE4res`.
pub type Sequence4Res = Result<Sequence4Resok, Nfsstat4>;

xdr_struct! {
/// `ssa_digest_input4`.
pub struct SsaDigestInput4 {
    sdi_seqargs: Sequence4Args,
} }

xdr_struct! {
/// `SET_SSV4args`.
pub struct SetSsv4Args<'a> {
    ssa_ssv: Opaque<'a>,
    ssa_digest: Opaque<'a>,
} }

xdr_struct! {
/// `ssr_digest_input4`.
pub struct SsrDigestInput4 {
    sdi_seqres: Sequence4Res,
} }

xdr_struct! {
/// `SET_SSV4resok`.
pub struct SetSsv4Resok<'a> {
    ssr_digest: Opaque<'a>,
} }

/// `SET_SSV4res`.
pub type SetSsv4Res<'a> = Result<SetSsv4Resok<'a>, Nfsstat4>;

xdr_struct! {
/// `TEST_STATEID4args`.
pub struct TestStateid4Args {
    ts_stateids: Vec<Stateid4>,
} }

xdr_struct! {
/// `TEST_STATEID4resok`.
pub struct TestStateid4Resok {
    tsr_status_codes: Vec<Nfsstat4>,
} }

/// `TEST_STATEID4res`.
pub type TestStateid4Res = Result<TestStateid4Resok, Nfsstat4>;

xdr_union! {
/// `deleg_claim4`.
pub enum DelegClaim4 by OpenClaimType4 {
    4 ClaimFh,
    6 ClaimDelegPrevFh,
    1 ClaimPrevious(OpenDelegationType4),
} }

xdr_struct! {
/// `WANT_DELEGATION4args`.
pub struct WantDelegation4Args {
    wda_want: u32,
    wda_claim: DelegClaim4,
} }

/// `WANT_DELEGATION4res`.
pub type WantDelegation4Res<'a> = Result<OpenDelegation4<'a>, Nfsstat4>;

xdr_struct! {
/// `DESTROY_CLIENTID4args`.
pub struct DestroyClientid4Args {
    dca_clientid: Clientid4,
} }

/// `DESTROY_CLIENTID4res`.
pub type DestroyClientid4Res = Result<(), Nfsstat4>;

xdr_struct! {
/// `RECLAIM_COMPLETE4args`.
pub struct ReclaimComplete4Args {
    rca_one_fs: bool,
} }

/// `RECLAIM_COMPLETE4res`.
pub type ReclaimComplete4Res = Result<(), Nfsstat4>;

xdr_struct! {
/// `COPY4args`.
pub struct Copy4Args<'a> {
    ca_src_stateid: Stateid4,
    ca_dst_stateid: Stateid4,
    ca_src_offset: Offset4,
    ca_dst_offset: Offset4,
    ca_count: Length4,
    ca_consecutive: bool,
    ca_synchronous: bool,
    ca_source_server: Vec<Netloc4<'a>>,
} }

xdr_struct! {
/// `copy_requirements4`.
pub struct CopyRequirements4 {
    cr_consecutive: bool,
    cr_synchronous: bool,
} }

xdr_struct! {
/// `COPY4resok`.
pub struct Copy4Resok {
    cr_response: WriteResponse4,
    cr_requirements: CopyRequirements4,
} }

xdr_union! {
/// `COPY4res`.
pub enum Copy4Res by Nfsstat4 {
    0 Nfs4Ok(Copy4Resok),
    10094 Nfs4ErrOffloadNoReqs(CopyRequirements4),
    else Default(Nfsstat4),
} }

xdr_struct! {
/// `COPY_NOTIFY4args`.
pub struct CopyNotify4Args<'a> {
    cna_src_stateid: Stateid4,
    cna_destination_server: Netloc4<'a>,
} }

xdr_struct! {
/// `COPY_NOTIFY4resok`.
pub struct CopyNotify4Resok<'a> {
    cnr_lease_time: Nfstime4,
    cnr_stateid: Stateid4,
    cnr_source_server: Vec<Netloc4<'a>>,
} }

/// `COPY_NOTIFY4res`.
pub type CopyNotify4Res<'a> = Result<CopyNotify4Resok<'a>, Nfsstat4>;

xdr_struct! {
/// `OFFLOAD_CANCEL4args`.
pub struct OffloadCancel4Args {
    oca_stateid: Stateid4,
} }

/// `OFFLOAD_CANCEL4res`.
pub type OffloadCancel4Res = Result<(), Nfsstat4>;

xdr_struct! {
/// `OFFLOAD_STATUS4args`.
pub struct OffloadStatus4Args {
    osa_stateid: Stateid4,
} }

xdr_struct! {
/// `OFFLOAD_STATUS4resok`.
pub struct OffloadStatus4Resok {
    osr_count: Length4,
    osr_complete: Option<Nfsstat4>,
} }

/// `OFFLOAD_STATUS4res`.
pub type OffloadStatus4Res = Result<OffloadStatus4Resok, Nfsstat4>;

xdr_struct! {
/// `ALLOCATE4args`.
pub struct Allocate4Args {
    aa_stateid: Stateid4,
    aa_offset: Offset4,
    aa_length: Length4,
} }

/// `ALLOCATE4res`.
pub type Allocate4Res = Result<(), Nfsstat4>;

xdr_struct! {
/// `DEALLOCATE4args`.
pub struct Deallocate4Args {
    da_stateid: Stateid4,
    da_offset: Offset4,
    da_length: Length4,
} }

/// `DEALLOCATE4res`.
pub type Deallocate4Res = Result<(), Nfsstat4>;

xdr_enum! {
/// `IO_ADVISE_type4`.
pub struct IoAdviseType4 {
    IO_ADVISE4_NORMAL = 0,
    IO_ADVISE4_SEQUENTIAL = 1,
    IO_ADVISE4_SEQUENTIAL_BACKWARDS = 2,
    IO_ADVISE4_RANDOM = 3,
    IO_ADVISE4_WILLNEED = 4,
    IO_ADVISE4_WILLNEED_OPPORTUNISTIC = 5,
    IO_ADVISE4_DONTNEED = 6,
    IO_ADVISE4_NOREUSE = 7,
    IO_ADVISE4_READ = 8,
    IO_ADVISE4_WRITE = 9,
    IO_ADVISE4_INIT_PROXIMITY = 10,
} }

xdr_struct! {
/// `IO_ADVISE4args`.
pub struct IoAdvise4Args {
    iaa_stateid: Stateid4,
    iaa_offset: Offset4,
    iaa_count: Length4,
    iaa_hints: Bitmap4,
} }

xdr_struct! {
/// `IO_ADVISE4resok`.
pub struct IoAdvise4Resok {
    ior_hints: Bitmap4,
} }

/// `IO_ADVISE4res`.
pub type IoAdvise4Res = Result<IoAdvise4Resok, Nfsstat4>;

xdr_struct! {
/// `device_error4`.
pub struct DeviceError4 {
    de_deviceid: Deviceid4,
    de_status: Nfsstat4,
    de_opnum: NfsOpnum4,
} }

xdr_struct! {
/// `LAYOUTERROR4args`.
pub struct Layouterror4Args {
    lea_offset: Offset4,
    lea_length: Length4,
    lea_stateid: Stateid4,
    lea_errors: Vec<DeviceError4>,
} }

/// `LAYOUTERROR4res`.
pub type Layouterror4Res = Result<(), Nfsstat4>;

xdr_struct! {
/// `io_info4`.
pub struct IoInfo4 {
    ii_count: u64,
    ii_bytes: u64,
} }

xdr_struct! {
/// `LAYOUTSTATS4args`.
pub struct Layoutstats4Args<'a> {
    lsa_offset: Offset4,
    lsa_length: Length4,
    lsa_stateid: Stateid4,
    lsa_read: IoInfo4,
    lsa_write: IoInfo4,
    lsa_deviceid: Deviceid4,
    lsa_layoutupdate: Layoutupdate4<'a>,
} }

/// `LAYOUTSTATS4res`.
pub type Layoutstats4Res = Result<(), Nfsstat4>;

xdr_struct! {
/// `READ_PLUS4args`.
pub struct ReadPlus4Args {
    rpa_stateid: Stateid4,
    rpa_offset: Offset4,
    rpa_count: Count4,
} }

xdr_union! {
/// `read_plus_content`.
pub enum ReadPlusContent<'a> by DataContent4 {
    0 Nfs4ContentData(Data4<'a>),
    1 Nfs4ContentHole(DataInfo4),
    else Default(DataContent4),
} }

xdr_struct! {
/// `read_plus_res4`.
pub struct ReadPlusRes4<'a> {
    rpr_eof: bool,
    rpr_contents: Vec<ReadPlusContent<'a>>,
} }

/// `READ_PLUS4res`.
pub type ReadPlus4Res<'a> = Result<ReadPlusRes4<'a>, Nfsstat4>;

xdr_struct! {
/// `SEEK4args`.
pub struct Seek4Args {
    sa_stateid: Stateid4,
    sa_offset: Offset4,
    sa_what: DataContent4,
} }

xdr_struct! {
/// `seek_res4`.
pub struct SeekRes4 {
    sr_eof: bool,
    sr_offset: Offset4,
} }

/// `SEEK4res`.
pub type Seek4Res = Result<SeekRes4, Nfsstat4>;

xdr_struct! {
/// `WRITE_SAME4args`.
pub struct WriteSame4Args<'a> {
    wsa_stateid: Stateid4,
    wsa_stable: StableHow4,
    wsa_adb: AppDataBlock4<'a>,
} }

/// `WRITE_SAME4res`.
pub type WriteSame4Res = Result<WriteResponse4, Nfsstat4>;

xdr_union! {
/// `nfs_argop4`.
pub enum NfsArgop4<'a> by NfsOpnum4 {
    3 Access(Access4Args),
    4 Close(Close4Args),
    5 Commit(Commit4Args),
    6 Create(Create4Args<'a>),
    7 Delegpurge(Delegpurge4Args),
    8 Delegreturn(Delegreturn4Args),
    9 Getattr(Getattr4Args),
    10 Getfh,
    11 Link(Link4Args<'a>),
    12 Lock(Lock4Args<'a>),
    13 Lockt(Lockt4Args<'a>),
    14 Locku(Locku4Args),
    15 Lookup(Lookup4Args<'a>),
    16 Lookupp,
    17 Nverify(Nverify4Args<'a>),
    18 Open(Open4Args<'a>),
    19 Openattr(Openattr4Args),
    20 OpenConfirm(OpenConfirm4Args),
    21 OpenDowngrade(OpenDowngrade4Args),
    22 Putfh(Putfh4Args<'a>),
    23 Putpubfh,
    24 Putrootfh,
    25 Read(Read4Args),
    26 Readdir(Readdir4Args),
    27 Readlink,
    28 Remove(Remove4Args<'a>),
    29 Rename(Rename4Args<'a>),
    30 Renew(Renew4Args),
    31 Restorefh,
    32 Savefh,
    33 Secinfo(Secinfo4Args<'a>),
    34 Setattr(Setattr4Args<'a>),
    35 Setclientid(Setclientid4Args<'a>),
    36 SetclientidConfirm(SetclientidConfirm4Args),
    37 Verify(Verify4Args<'a>),
    38 Write(Write4Args<'a>),
    39 ReleaseLockowner(ReleaseLockowner4Args<'a>),
    40 BackchannelCtl(BackchannelCtl4Args<'a>),
    41 BindConnToSession(BindConnToSession4Args),
    42 ExchangeId(ExchangeId4Args<'a>),
    43 CreateSession(CreateSession4Args<'a>),
    44 DestroySession(DestroySession4Args),
    45 FreeStateid(FreeStateid4Args),
    46 GetDirDelegation(GetDirDelegation4Args),
    47 Getdeviceinfo(Getdeviceinfo4Args),
    48 Getdevicelist(Getdevicelist4Args),
    49 Layoutcommit(Layoutcommit4Args<'a>),
    50 Layoutget(Layoutget4Args),
    51 Layoutreturn(Layoutreturn4Args<'a>),
    52 SecinfoNoName(SecinfoNoName4Args),
    53 Sequence(Sequence4Args),
    54 SetSsv(SetSsv4Args<'a>),
    55 TestStateid(TestStateid4Args),
    56 WantDelegation(WantDelegation4Args),
    57 DestroyClientid(DestroyClientid4Args),
    58 ReclaimComplete(ReclaimComplete4Args),
    59 Allocate(Allocate4Args),
    60 Copy(Copy4Args<'a>),
    61 CopyNotify(CopyNotify4Args<'a>),
    62 Deallocate(Deallocate4Args),
    63 IoAdvise(IoAdvise4Args),
    64 Layouterror(Layouterror4Args),
    65 Layoutstats(Layoutstats4Args<'a>),
    66 OffloadCancel(OffloadCancel4Args),
    67 OffloadStatus(OffloadStatus4Args),
    68 ReadPlus(ReadPlus4Args),
    69 Seek(Seek4Args),
    70 WriteSame(WriteSame4Args<'a>),
    71 Clone(Clone4Args),
    10044 Illegal,
    72 Getxattr(Getxattr4Args<'a>),
    73 Setxattr(Setxattr4Args<'a>),
    74 Listxattrs(Listxattrs4Args),
    75 Removexattr(Removexattr4Args<'a>),
} }

xdr_union! {
/// `nfs_resop4`.
pub enum NfsResop4<'a> by NfsOpnum4 {
    3 Access(Access4Res),
    4 Close(Close4Res),
    5 Commit(Commit4Res),
    6 Create(Create4Res),
    7 Delegpurge(Delegpurge4Res),
    8 Delegreturn(Delegreturn4Res),
    9 Getattr(Getattr4Res<'a>),
    10 Getfh(Getfh4Res<'a>),
    11 Link(Link4Res),
    12 Lock(Lock4Res<'a>),
    13 Lockt(Lockt4Res<'a>),
    14 Locku(Locku4Res),
    15 Lookup(Lookup4Res),
    16 Lookupp(Lookupp4Res),
    17 Nverify(Nverify4Res),
    18 Open(Open4Res<'a>),
    19 Openattr(Openattr4Res),
    20 OpenConfirm(OpenConfirm4Res),
    21 OpenDowngrade(OpenDowngrade4Res),
    22 Putfh(Putfh4Res),
    23 Putpubfh(Putpubfh4Res),
    24 Putrootfh(Putrootfh4Res),
    25 Read(Read4Res<'a>),
    26 Readdir(Readdir4Res<'a>),
    27 Readlink(Readlink4Res<'a>),
    28 Remove(Remove4Res),
    29 Rename(Rename4Res),
    30 Renew(Renew4Res),
    31 Restorefh(Restorefh4Res),
    32 Savefh(Savefh4Res),
    33 Secinfo(Secinfo4Res<'a>),
    34 Setattr(Setattr4Res),
    35 Setclientid(Setclientid4Res<'a>),
    36 SetclientidConfirm(SetclientidConfirm4Res),
    37 Verify(Verify4Res),
    38 Write(Write4Res),
    39 ReleaseLockowner(ReleaseLockowner4Res),
    40 BackchannelCtl(BackchannelCtl4Res),
    41 BindConnToSession(BindConnToSession4Res),
    42 ExchangeId(ExchangeId4Res<'a>),
    43 CreateSession(CreateSession4Res),
    44 DestroySession(DestroySession4Res),
    45 FreeStateid(FreeStateid4Res),
    46 GetDirDelegation(GetDirDelegation4Res),
    47 Getdeviceinfo(Getdeviceinfo4Res<'a>),
    48 Getdevicelist(Getdevicelist4Res),
    49 Layoutcommit(Layoutcommit4Res),
    50 Layoutget(Layoutget4Res<'a>),
    51 Layoutreturn(Layoutreturn4Res),
    52 SecinfoNoName(SecinfoNoName4Res<'a>),
    53 Sequence(Sequence4Res),
    54 SetSsv(SetSsv4Res<'a>),
    55 TestStateid(TestStateid4Res),
    56 WantDelegation(WantDelegation4Res<'a>),
    57 DestroyClientid(DestroyClientid4Res),
    58 ReclaimComplete(ReclaimComplete4Res),
    59 Allocate(Allocate4Res),
    60 Copy(Copy4Res),
    61 CopyNotify(CopyNotify4Res<'a>),
    62 Deallocate(Deallocate4Res),
    63 IoAdvise(IoAdvise4Res),
    64 Layouterror(Layouterror4Res),
    65 Layoutstats(Layoutstats4Res),
    66 OffloadCancel(OffloadCancel4Res),
    67 OffloadStatus(OffloadStatus4Res),
    68 ReadPlus(ReadPlus4Res<'a>),
    69 Seek(Seek4Res),
    70 WriteSame(WriteSame4Res),
    71 Clone(Clone4Res),
    10044 Illegal(Illegal4Res),
    72 Getxattr(Getxattr4Res<'a>),
    73 Setxattr(Setxattr4Res),
    74 Listxattrs(Listxattrs4Res<'a>),
    75 Removexattr(Removexattr4Res),
} }

xdr_struct! {
/// `COMPOUND4args`.
pub struct Compound4Args<'a> {
    tag: Utf8StrCs<'a>,
    minorversion: u32,
    argarray: Vec<NfsArgop4<'a>>,
} }

xdr_struct! {
/// `COMPOUND4res`.
pub struct Compound4Res<'a> {
    status: Nfsstat4,
    tag: Utf8StrCs<'a>,
    resarray: Vec<NfsResop4<'a>>,
} }

xdr_struct! {
/// `CB_GETATTR4args`.
pub struct CbGetattr4Args<'a> {
    fh: NfsFh4<'a>,
    attr_request: Bitmap4,
} }

xdr_struct! {
/// `CB_GETATTR4resok`.
pub struct CbGetattr4Resok<'a> {
    obj_attributes: Fattr4<'a>,
} }

/// `CB_GETATTR4res`.
pub type CbGetattr4Res<'a> = Result<CbGetattr4Resok<'a>, Nfsstat4>;

xdr_struct! {
/// `CB_RECALL4args`.
pub struct CbRecall4Args<'a> {
    stateid: Stateid4,
    truncate: bool,
    fh: NfsFh4<'a>,
} }

/// `CB_RECALL4res`.
pub type CbRecall4Res = Result<(), Nfsstat4>;

/// `CB_ILLEGAL4res`.
pub type CbIllegal4Res = Result<(), Nfsstat4>;

xdr_enum! {
/// `layoutrecall_type4`.
pub struct LayoutrecallType4 {
    LAYOUTRECALL4_FILE = 1,
    LAYOUTRECALL4_FSID = 2,
    LAYOUTRECALL4_ALL = 3,
} }

xdr_struct! {
/// `layoutrecall_file4`.
pub struct LayoutrecallFile4<'a> {
    lor_fh: NfsFh4<'a>,
    lor_offset: Offset4,
    lor_length: Length4,
    lor_stateid: Stateid4,
} }

xdr_union! {
/// `layoutrecall4`.
pub enum Layoutrecall4<'a> by LayoutrecallType4 {
    1 Layoutrecall4File(LayoutrecallFile4<'a>),
    2 Layoutrecall4Fsid(Fsid4),
    3 Layoutrecall4All,
} }

xdr_struct! {
/// `CB_LAYOUTRECALL4args`.
pub struct CbLayoutrecall4Args<'a> {
    clora_type: Layouttype4,
    clora_iomode: Layoutiomode4,
    clora_changed: bool,
    clora_recall: Layoutrecall4<'a>,
} }

/// `CB_LAYOUTRECALL4res`.
pub type CbLayoutrecall4Res = Result<(), Nfsstat4>;

xdr_enum! {
/// `notify_type4`.
pub struct NotifyType4 {
    NOTIFY4_CHANGE_CHILD_ATTRS = 0,
    NOTIFY4_CHANGE_DIR_ATTRS = 1,
    NOTIFY4_REMOVE_ENTRY = 2,
    NOTIFY4_ADD_ENTRY = 3,
    NOTIFY4_RENAME_ENTRY = 4,
    NOTIFY4_CHANGE_COOKIE_VERIFIER = 5,
} }

xdr_struct! {
/// `notify_entry4`.
pub struct NotifyEntry4<'a> {
    ne_file: Component4<'a>,
    ne_attrs: Fattr4<'a>,
} }

xdr_struct! {
/// `prev_entry4`.
pub struct PrevEntry4<'a> {
    pe_prev_entry: NotifyEntry4<'a>,
    pe_prev_entry_cookie: NfsCookie4,
} }

xdr_struct! {
/// `notify_remove4`.
pub struct NotifyRemove4<'a> {
    nrm_old_entry: NotifyEntry4<'a>,
    nrm_old_entry_cookie: NfsCookie4,
} }

xdr_struct! {
/// `notify_add4`.
pub struct NotifyAdd4<'a> {
    nad_old_entry: Option<NotifyRemove4<'a>>,
    nad_new_entry: NotifyEntry4<'a>,
    nad_new_entry_cookie: Option<NfsCookie4>,
    nad_prev_entry: Option<PrevEntry4<'a>>,
    nad_last_entry: bool,
} }

xdr_struct! {
/// `notify_attr4`.
pub struct NotifyAttr4<'a> {
    na_changed_entry: NotifyEntry4<'a>,
} }

xdr_struct! {
/// `notify_rename4`.
pub struct NotifyRename4<'a> {
    nrn_old_entry: NotifyRemove4<'a>,
    nrn_new_entry: NotifyAdd4<'a>,
} }

xdr_struct! {
/// `notify_verifier4`.
pub struct NotifyVerifier4 {
    nv_old_cookieverf: Verifier4,
    nv_new_cookieverf: Verifier4,
} }

/// `notifylist4`.
pub type Notifylist4<'a> = Opaque<'a>;

xdr_struct! {
/// `notify4`.
pub struct Notify4<'a> {
    notify_mask: Bitmap4,
    notify_vals: Notifylist4<'a>,
} }

xdr_struct! {
/// `CB_NOTIFY4args`.
pub struct CbNotify4Args<'a> {
    cna_stateid: Stateid4,
    cna_fh: NfsFh4<'a>,
    cna_changes: Vec<Notify4<'a>>,
} }

/// `CB_NOTIFY4res`.
pub type CbNotify4Res = Result<(), Nfsstat4>;

xdr_struct! {
/// `CB_PUSH_DELEG4args`.
pub struct CbPushDeleg4Args<'a> {
    cpda_fh: NfsFh4<'a>,
    cpda_delegation: OpenDelegation4<'a>,
} }

/// `CB_PUSH_DELEG4res`.
pub type CbPushDeleg4Res = Result<(), Nfsstat4>;

xdr_struct! {
/// `CB_RECALL_ANY4args`.
pub struct CbRecallAny4Args {
    craa_objects_to_keep: u32,
    craa_type_mask: Bitmap4,
} }

/// `CB_RECALL_ANY4res`.
pub type CbRecallAny4Res = Result<(), Nfsstat4>;

/// `CB_RECALLABLE_OBJ_AVAIL4args`.
pub type CbRecallableObjAvail4Args = CbRecallAny4Args;

/// `CB_RECALLABLE_OBJ_AVAIL4res`.
pub type CbRecallableObjAvail4Res = Result<(), Nfsstat4>;

xdr_struct! {
/// `CB_RECALL_SLOT4args`.
pub struct CbRecallSlot4Args {
    rsa_target_highest_slotid: Slotid4,
} }

/// `CB_RECALL_SLOT4res`.
pub type CbRecallSlot4Res = Result<(), Nfsstat4>;

xdr_struct! {
/// `referring_call4`.
pub struct ReferringCall4 {
    rc_sequenceid: Sequenceid4,
    rc_slotid: Slotid4,
} }

xdr_struct! {
/// `referring_call_list4`.
pub struct ReferringCallList4 {
    rcl_sessionid: Sessionid4,
    rcl_referring_calls: Vec<ReferringCall4>,
} }

xdr_struct! {
/// `CB_SEQUENCE4args`.
pub struct CbSequence4Args {
    csa_sessionid: Sessionid4,
    csa_sequenceid: Sequenceid4,
    csa_slotid: Slotid4,
    csa_highest_slotid: Slotid4,
    csa_cachethis: bool,
    csa_referring_call_lists: Vec<ReferringCallList4>,
} }

xdr_struct! {
/// `CB_SEQUENCE4resok`.
pub struct CbSequence4Resok {
    csr_sessionid: Sessionid4,
    csr_sequenceid: Sequenceid4,
    csr_slotid: Slotid4,
    csr_highest_slotid: Slotid4,
    csr_target_highest_slotid: Slotid4,
} }

/// `CB_SEQUENCE4res`.
pub type CbSequence4Res = Result<CbSequence4Resok, Nfsstat4>;

xdr_struct! {
/// `CB_WANTS_CANCELLED4args`.
pub struct CbWantsCancelled4Args {
    cwca_contended_wants_cancelled: bool,
    cwca_resourced_wants_cancelled: bool,
} }

/// `CB_WANTS_CANCELLED4res`.
pub type CbWantsCancelled4Res = Result<(), Nfsstat4>;

xdr_struct! {
/// `CB_NOTIFY_LOCK4args`.
pub struct CbNotifyLock4Args<'a> {
    cnla_fh: NfsFh4<'a>,
    cnla_lock_owner: LockOwner4<'a>,
} }

/// `CB_NOTIFY_LOCK4res`.
pub type CbNotifyLock4Res = Result<(), Nfsstat4>;

xdr_enum! {
/// `notify_deviceid_type4`.
pub struct NotifyDeviceidType4 {
    NOTIFY_DEVICEID4_CHANGE = 1,
    NOTIFY_DEVICEID4_DELETE = 2,
} }

xdr_struct! {
/// `notify_deviceid_delete4`.
pub struct NotifyDeviceidDelete4 {
    ndd_layouttype: Layouttype4,
    ndd_deviceid: Deviceid4,
} }

xdr_struct! {
/// `notify_deviceid_change4`.
pub struct NotifyDeviceidChange4 {
    ndc_layouttype: Layouttype4,
    ndc_deviceid: Deviceid4,
    ndc_immediate: bool,
} }

xdr_struct! {
/// `CB_NOTIFY_DEVICEID4args`.
pub struct CbNotifyDeviceid4Args<'a> {
    cnda_changes: Vec<Notify4<'a>>,
} }

/// `CB_NOTIFY_DEVICEID4res`.
pub type CbNotifyDeviceid4Res = Result<(), Nfsstat4>;

xdr_union! {
/// `offload_info4`.
pub enum OffloadInfo4 by Nfsstat4 {
    0 Nfs4Ok(WriteResponse4),
    else Default(Nfsstat4, Length4),
} }

xdr_struct! {
/// `CB_OFFLOAD4args`.
pub struct CbOffload4Args<'a> {
    coa_fh: NfsFh4<'a>,
    coa_stateid: Stateid4,
    coa_offload_info: OffloadInfo4,
} }

/// `CB_OFFLOAD4res`.
pub type CbOffload4Res = Result<(), Nfsstat4>;

xdr_enum! {
/// `nfs_cb_opnum4`.
pub struct NfsCbOpnum4 {
    OP_CB_GETATTR = 3,
    OP_CB_RECALL = 4,
    OP_CB_LAYOUTRECALL = 5,
    OP_CB_NOTIFY = 6,
    OP_CB_PUSH_DELEG = 7,
    OP_CB_RECALL_ANY = 8,
    OP_CB_RECALLABLE_OBJ_AVAIL = 9,
    OP_CB_RECALL_SLOT = 10,
    OP_CB_SEQUENCE = 11,
    OP_CB_WANTS_CANCELLED = 12,
    OP_CB_NOTIFY_LOCK = 13,
    OP_CB_NOTIFY_DEVICEID = 14,
    OP_CB_OFFLOAD = 15,
    OP_CB_ILLEGAL = 10044,
} }

xdr_union! {
/// `nfs_cb_argop4`.
pub enum NfsCbArgop4<'a> by NfsCbOpnum4 {
    3 CbGetattr(CbGetattr4Args<'a>),
    4 CbRecall(CbRecall4Args<'a>),
    5 CbLayoutrecall(CbLayoutrecall4Args<'a>),
    6 CbNotify(CbNotify4Args<'a>),
    7 CbPushDeleg(CbPushDeleg4Args<'a>),
    8 CbRecallAny(CbRecallAny4Args),
    9 CbRecallableObjAvail(CbRecallableObjAvail4Args),
    10 CbRecallSlot(CbRecallSlot4Args),
    11 CbSequence(CbSequence4Args),
    12 CbWantsCancelled(CbWantsCancelled4Args),
    13 CbNotifyLock(CbNotifyLock4Args<'a>),
    14 CbNotifyDeviceid(CbNotifyDeviceid4Args<'a>),
    15 CbOffload(CbOffload4Args<'a>),
    10044 CbIllegal,
} }

xdr_union! {
/// `nfs_cb_resop4`.
pub enum NfsCbResop4<'a> by NfsCbOpnum4 {
    3 CbGetattr(CbGetattr4Res<'a>),
    4 CbRecall(CbRecall4Res),
    5 CbLayoutrecall(CbLayoutrecall4Res),
    6 CbNotify(CbNotify4Res),
    7 CbPushDeleg(CbPushDeleg4Res),
    8 CbRecallAny(CbRecallAny4Res),
    9 CbRecallableObjAvail(CbRecallableObjAvail4Res),
    10 CbRecallSlot(CbRecallSlot4Res),
    11 CbSequence(CbSequence4Res),
    12 CbWantsCancelled(CbWantsCancelled4Res),
    13 CbNotifyLock(CbNotifyLock4Res),
    14 CbNotifyDeviceid(CbNotifyDeviceid4Res),
    15 CbOffload(CbOffload4Res),
    10044 CbIllegal(CbIllegal4Res),
} }

xdr_struct! {
/// `CB_COMPOUND4args`.
pub struct CbCompound4Args<'a> {
    tag: Utf8StrCs<'a>,
    minorversion: u32,
    callback_ident: u32,
    argarray: Vec<NfsCbArgop4<'a>>,
} }

xdr_struct! {
/// `CB_COMPOUND4res`.
pub struct CbCompound4Res<'a> {
    status: Nfsstat4,
    tag: Utf8StrCs<'a>,
    resarray: Vec<NfsCbResop4<'a>>,
} }

/// `xattrkey4`.
pub type Xattrkey4<'a> = Component4<'a>;

/// `xattrvalue4`.
pub type Xattrvalue4<'a> = Opaque<'a>;

xdr_struct! {
/// `GETXATTR4args`.
pub struct Getxattr4Args<'a> {
    gxa_name: Xattrkey4<'a>,
} }

/// `GETXATTR4res`.
pub type Getxattr4Res<'a> = Result<Xattrvalue4<'a>, Nfsstat4>;

xdr_enum! {
/// `setxattr_option4`.
pub struct SetxattrOption4 {
    SETXATTR4_EITHER = 0,
    SETXATTR4_CREATE = 1,
    SETXATTR4_REPLACE = 2,
} }

xdr_struct! {
/// `SETXATTR4args`.
pub struct Setxattr4Args<'a> {
    sxa_option: SetxattrOption4,
    sxa_key: Xattrkey4<'a>,
    sxa_value: Xattrvalue4<'a>,
} }

/// `SETXATTR4res`.
pub type Setxattr4Res = Result<ChangeInfo4, Nfsstat4>;

xdr_struct! {
/// `LISTXATTRS4args`.
pub struct Listxattrs4Args {
    lxa_cookie: NfsCookie4,
    lxa_maxcount: Count4,
} }

xdr_struct! {
/// `LISTXATTRS4resok`.
pub struct Listxattrs4Resok<'a> {
    lxr_cookie: NfsCookie4,
    lxr_names: Vec<Xattrkey4<'a>>,
    lxr_eof: bool,
} }

/// `LISTXATTRS4res`.
pub type Listxattrs4Res<'a> = Result<Listxattrs4Resok<'a>, Nfsstat4>;

xdr_struct! {
/// `REMOVEXATTR4args`.
pub struct Removexattr4Args<'a> {
    rxa_name: Xattrkey4<'a>,
} }

/// `REMOVEXATTR4res`.
pub type Removexattr4Res = Result<ChangeInfo4, Nfsstat4>;

/// `fattr4_xattr_support`.
pub type Fattr4XattrSupport = bool;

xdr_struct! {
/// `mode_umask4`.
pub struct ModeUmask4 {
    mu_mode: Mode4,
    mu_umask: Mode4,
} }

/// `fattr4_mode_umask`.
pub type Fattr4ModeUmask = ModeUmask4;

xdr_attributes! {
    0 SUPPORTED_ATTRS SupportedAttrs(Fattr4SupportedAttrs),
    1 TYPE Type(Fattr4Type),
    2 FH_EXPIRE_TYPE FhExpireType(Fattr4FhExpireType),
    3 CHANGE Change(Fattr4Change),
    4 SIZE Size(Fattr4Size),
    5 LINK_SUPPORT LinkSupport(Fattr4LinkSupport),
    6 SYMLINK_SUPPORT SymlinkSupport(Fattr4SymlinkSupport),
    7 NAMED_ATTR NamedAttr(Fattr4NamedAttr),
    8 FSID Fsid(Fattr4Fsid),
    9 UNIQUE_HANDLES UniqueHandles(Fattr4UniqueHandles),
    10 LEASE_TIME LeaseTime(Fattr4LeaseTime),
    11 RDATTR_ERROR RdattrError(Fattr4RdattrError),
    12 ACL Acl(Fattr4Acl<'a>),
    13 ACLSUPPORT Aclsupport(Fattr4Aclsupport),
    14 ARCHIVE Archive(Fattr4Archive),
    15 CANSETTIME Cansettime(Fattr4Cansettime),
    16 CASE_INSENSITIVE CaseInsensitive(Fattr4CaseInsensitive),
    17 CASE_PRESERVING CasePreserving(Fattr4CasePreserving),
    18 CHOWN_RESTRICTED ChownRestricted(Fattr4ChownRestricted),
    19 FILEHANDLE Filehandle(Fattr4Filehandle<'a>),
    20 FILEID Fileid(Fattr4Fileid),
    21 FILES_AVAIL FilesAvail(Fattr4FilesAvail),
    22 FILES_FREE FilesFree(Fattr4FilesFree),
    23 FILES_TOTAL FilesTotal(Fattr4FilesTotal),
    24 FS_LOCATIONS FsLocations(Fattr4FsLocations<'a>),
    25 HIDDEN Hidden(Fattr4Hidden),
    26 HOMOGENEOUS Homogeneous(Fattr4Homogeneous),
    27 MAXFILESIZE Maxfilesize(Fattr4Maxfilesize),
    28 MAXLINK Maxlink(Fattr4Maxlink),
    29 MAXNAME Maxname(Fattr4Maxname),
    30 MAXREAD Maxread(Fattr4Maxread),
    31 MAXWRITE Maxwrite(Fattr4Maxwrite),
    32 MIMETYPE Mimetype(Fattr4Mimetype<'a>),
    33 MODE Mode(Fattr4Mode),
    34 NO_TRUNC NoTrunc(Fattr4NoTrunc),
    35 NUMLINKS Numlinks(Fattr4Numlinks),
    36 OWNER Owner(Fattr4Owner<'a>),
    37 OWNER_GROUP OwnerGroup(Fattr4OwnerGroup<'a>),
    38 QUOTA_AVAIL_HARD QuotaAvailHard(Fattr4QuotaAvailHard),
    39 QUOTA_AVAIL_SOFT QuotaAvailSoft(Fattr4QuotaAvailSoft),
    40 QUOTA_USED QuotaUsed(Fattr4QuotaUsed),
    41 RAWDEV Rawdev(Fattr4Rawdev),
    42 SPACE_AVAIL SpaceAvail(Fattr4SpaceAvail),
    43 SPACE_FREE SpaceFree(Fattr4SpaceFree),
    44 SPACE_TOTAL SpaceTotal(Fattr4SpaceTotal),
    45 SPACE_USED SpaceUsed(Fattr4SpaceUsed),
    46 SYSTEM System(Fattr4System),
    47 TIME_ACCESS TimeAccess(Fattr4TimeAccess),
    48 TIME_ACCESS_SET TimeAccessSet(Fattr4TimeAccessSet),
    49 TIME_BACKUP TimeBackup(Fattr4TimeBackup),
    50 TIME_CREATE TimeCreate(Fattr4TimeCreate),
    51 TIME_DELTA TimeDelta(Fattr4TimeDelta),
    52 TIME_METADATA TimeMetadata(Fattr4TimeMetadata),
    53 TIME_MODIFY TimeModify(Fattr4TimeModify),
    54 TIME_MODIFY_SET TimeModifySet(Fattr4TimeModifySet),
    55 MOUNTED_ON_FILEID MountedOnFileid(Fattr4MountedOnFileid),
    56 DIR_NOTIF_DELAY DirNotifDelay(Fattr4DirNotifDelay),
    57 DIRENT_NOTIF_DELAY DirentNotifDelay(Fattr4DirentNotifDelay),
    58 DACL Dacl(Fattr4Dacl<'a>),
    59 SACL Sacl(Fattr4Sacl<'a>),
    60 CHANGE_POLICY ChangePolicy(Fattr4ChangePolicy),
    61 FS_STATUS FsStatus(Fattr4FsStatus<'a>),
    62 FS_LAYOUT_TYPES FsLayoutTypes(Fattr4FsLayoutTypes),
    63 LAYOUT_HINT LayoutHint(Fattr4LayoutHint<'a>),
    64 LAYOUT_TYPES LayoutTypes(Fattr4LayoutTypes),
    65 LAYOUT_BLKSIZE LayoutBlksize(Fattr4LayoutBlksize),
    66 LAYOUT_ALIGNMENT LayoutAlignment(Fattr4LayoutAlignment),
    67 FS_LOCATIONS_INFO FsLocationsInfo(Fattr4FsLocationsInfo<'a>),
    68 MDSTHRESHOLD Mdsthreshold(Fattr4Mdsthreshold<'a>),
    69 RETENTION_GET RetentionGet(Fattr4RetentionGet),
    70 RETENTION_SET RetentionSet(Fattr4RetentionSet),
    71 RETENTEVT_GET RetentevtGet(Fattr4RetentevtGet),
    72 RETENTEVT_SET RetentevtSet(Fattr4RetentevtSet),
    73 RETENTION_HOLD RetentionHold(Fattr4RetentionHold),
    74 MODE_SET_MASKED ModeSetMasked(Fattr4ModeSetMasked),
    75 SUPPATTR_EXCLCREAT SuppattrExclcreat(Fattr4SuppattrExclcreat),
    76 FS_CHARSET_CAP FsCharsetCap(Fattr4FsCharsetCap),
    77 CLONE_BLKSIZE CloneBlksize(Fattr4CloneBlksize),
    78 SPACE_FREED SpaceFreed(Fattr4SpaceFreed),
    79 CHANGE_ATTR_TYPE ChangeAttrType(Fattr4ChangeAttrType),
    80 SEC_LABEL SecLabel(Fattr4SecLabel<'a>),
    81 MODE_UMASK ModeUmask(Fattr4ModeUmask),
    82 XATTR_SUPPORT XattrSupport(Fattr4XattrSupport),
}

#[cfg(test)]
xdr_names! {
    "ACCESS4args" Access4Args,
    "ACCESS4res" Access4Res,
    "ACCESS4resok" Access4Resok,
    "aceflag4" Aceflag4,
    "acemask4" Acemask4,
    "acetype4" Acetype4,
    "aclflag4" Aclflag4,
    "ALLOCATE4args" Allocate4Args,
    "ALLOCATE4res" Allocate4Res,
    "app_data_block4" AppDataBlock4,
    "ascii_REQUIRED4" AsciiRequired4,
    "attr_notice4" AttrNotice4,
    "attrlist4" Attrlist4,
    "BACKCHANNEL_CTL4args" BackchannelCtl4Args,
    "BACKCHANNEL_CTL4res" BackchannelCtl4Res,
    "BIND_CONN_TO_SESSION4args" BindConnToSession4Args,
    "BIND_CONN_TO_SESSION4res" BindConnToSession4Res,
    "BIND_CONN_TO_SESSION4resok" BindConnToSession4Resok,
    "callback_sec_parms4" CallbackSecParms4,
    "cb_client4" CbClient4,
    "CB_COMPOUND4args" CbCompound4Args,
    "CB_COMPOUND4res" CbCompound4Res,
    "CB_GETATTR4args" CbGetattr4Args,
    "CB_GETATTR4res" CbGetattr4Res,
    "CB_GETATTR4resok" CbGetattr4Resok,
    "CB_ILLEGAL4res" CbIllegal4Res,
    "CB_LAYOUTRECALL4args" CbLayoutrecall4Args,
    "CB_LAYOUTRECALL4res" CbLayoutrecall4Res,
    "CB_NOTIFY4args" CbNotify4Args,
    "CB_NOTIFY4res" CbNotify4Res,
    "CB_NOTIFY_DEVICEID4args" CbNotifyDeviceid4Args,
    "CB_NOTIFY_DEVICEID4res" CbNotifyDeviceid4Res,
    "CB_NOTIFY_LOCK4args" CbNotifyLock4Args,
    "CB_NOTIFY_LOCK4res" CbNotifyLock4Res,
    "CB_OFFLOAD4args" CbOffload4Args,
    "CB_OFFLOAD4res" CbOffload4Res,
    "CB_PUSH_DELEG4args" CbPushDeleg4Args,
    "CB_PUSH_DELEG4res" CbPushDeleg4Res,
    "CB_RECALL4args" CbRecall4Args,
    "CB_RECALL4res" CbRecall4Res,
    "CB_RECALL_ANY4args" CbRecallAny4Args,
    "CB_RECALL_ANY4res" CbRecallAny4Res,
    "CB_RECALL_SLOT4args" CbRecallSlot4Args,
    "CB_RECALL_SLOT4res" CbRecallSlot4Res,
    "CB_RECALLABLE_OBJ_AVAIL4args" CbRecallableObjAvail4Args,
    "CB_RECALLABLE_OBJ_AVAIL4res" CbRecallableObjAvail4Res,
    "CB_SEQUENCE4args" CbSequence4Args,
    "CB_SEQUENCE4res" CbSequence4Res,
    "CB_SEQUENCE4resok" CbSequence4Resok,
    "CB_WANTS_CANCELLED4args" CbWantsCancelled4Args,
    "CB_WANTS_CANCELLED4res" CbWantsCancelled4Res,
    "change_attr_type4" ChangeAttrType4,
    "change_info4" ChangeInfo4,
    "change_policy4" ChangePolicy4,
    "changeid4" Changeid4,
    "channel_attrs4" ChannelAttrs4,
    "channel_dir_from_client4" ChannelDirFromClient4,
    "channel_dir_from_server4" ChannelDirFromServer4,
    "client_owner4" ClientOwner4,
    "clientaddr4" Clientaddr4,
    "clientid4" Clientid4,
    "CLONE4args" Clone4Args,
    "CLONE4res" Clone4Res,
    "CLOSE4args" Close4Args,
    "CLOSE4res" Close4Res,
    "COMMIT4args" Commit4Args,
    "COMMIT4res" Commit4Res,
    "COMMIT4resok" Commit4Resok,
    "component4" Component4,
    "COMPOUND4args" Compound4Args,
    "COMPOUND4res" Compound4Res,
    "COPY4args" Copy4Args,
    "COPY4res" Copy4Res,
    "COPY4resok" Copy4Resok,
    "copy_confirm_auth_priv" CopyConfirmAuthPriv,
    "copy_from_auth_priv" CopyFromAuthPriv,
    "COPY_NOTIFY4args" CopyNotify4Args,
    "COPY_NOTIFY4res" CopyNotify4Res,
    "COPY_NOTIFY4resok" CopyNotify4Resok,
    "copy_requirements4" CopyRequirements4,
    "copy_to_auth_priv" CopyToAuthPriv,
    "count4" Count4,
    "CREATE4args" Create4Args,
    "CREATE4res" Create4Res,
    "CREATE4resok" Create4Resok,
    "CREATE_SESSION4args" CreateSession4Args,
    "CREATE_SESSION4res" CreateSession4Res,
    "CREATE_SESSION4resok" CreateSession4Resok,
    "createhow4" Createhow4,
    "createmode4" Createmode4,
    "createtype4" Createtype4,
    "creatverfattr" Creatverfattr,
    "data4" Data4,
    "data_content4" DataContent4,
    "data_info4" DataInfo4,
    "DEALLOCATE4args" Deallocate4Args,
    "DEALLOCATE4res" Deallocate4Res,
    "deleg_claim4" DelegClaim4,
    "DELEGPURGE4args" Delegpurge4Args,
    "DELEGPURGE4res" Delegpurge4Res,
    "DELEGRETURN4args" Delegreturn4Args,
    "DELEGRETURN4res" Delegreturn4Res,
    "DESTROY_CLIENTID4args" DestroyClientid4Args,
    "DESTROY_CLIENTID4res" DestroyClientid4Res,
    "DESTROY_SESSION4args" DestroySession4Args,
    "DESTROY_SESSION4res" DestroySession4Res,
    "device_addr4" DeviceAddr4,
    "device_error4" DeviceError4,
    "deviceid4" Deviceid4,
    "dirlist4" Dirlist4,
    "entry4" Entry4,
    "EXCHANGE_ID4args" ExchangeId4Args,
    "EXCHANGE_ID4res" ExchangeId4Res,
    "EXCHANGE_ID4resok" ExchangeId4Resok,
    "exist_lock_owner4" ExistLockOwner4,
    "fattr4" Fattr4,
    "fattr4_acl" Fattr4Acl,
    "fattr4_aclsupport" Fattr4Aclsupport,
    "fattr4_archive" Fattr4Archive,
    "fattr4_cansettime" Fattr4Cansettime,
    "fattr4_case_insensitive" Fattr4CaseInsensitive,
    "fattr4_case_preserving" Fattr4CasePreserving,
    "fattr4_change" Fattr4Change,
    "fattr4_change_attr_type" Fattr4ChangeAttrType,
    "fattr4_change_policy" Fattr4ChangePolicy,
    "fattr4_chown_restricted" Fattr4ChownRestricted,
    "fattr4_clone_blksize" Fattr4CloneBlksize,
    "fattr4_dacl" Fattr4Dacl,
    "fattr4_dir_notif_delay" Fattr4DirNotifDelay,
    "fattr4_dirent_notif_delay" Fattr4DirentNotifDelay,
    "fattr4_fh_expire_type" Fattr4FhExpireType,
    "fattr4_filehandle" Fattr4Filehandle,
    "fattr4_fileid" Fattr4Fileid,
    "fattr4_files_avail" Fattr4FilesAvail,
    "fattr4_files_free" Fattr4FilesFree,
    "fattr4_files_total" Fattr4FilesTotal,
    "fattr4_fs_charset_cap" Fattr4FsCharsetCap,
    "fattr4_fs_layout_types" Fattr4FsLayoutTypes,
    "fattr4_fs_locations" Fattr4FsLocations,
    "fattr4_fs_locations_info" Fattr4FsLocationsInfo,
    "fattr4_fs_status" Fattr4FsStatus,
    "fattr4_fsid" Fattr4Fsid,
    "fattr4_hidden" Fattr4Hidden,
    "fattr4_homogeneous" Fattr4Homogeneous,
    "fattr4_layout_alignment" Fattr4LayoutAlignment,
    "fattr4_layout_blksize" Fattr4LayoutBlksize,
    "fattr4_layout_hint" Fattr4LayoutHint,
    "fattr4_layout_types" Fattr4LayoutTypes,
    "fattr4_lease_time" Fattr4LeaseTime,
    "fattr4_link_support" Fattr4LinkSupport,
    "fattr4_maxfilesize" Fattr4Maxfilesize,
    "fattr4_maxlink" Fattr4Maxlink,
    "fattr4_maxname" Fattr4Maxname,
    "fattr4_maxread" Fattr4Maxread,
    "fattr4_maxwrite" Fattr4Maxwrite,
    "fattr4_mdsthreshold" Fattr4Mdsthreshold,
    "fattr4_mimetype" Fattr4Mimetype,
    "fattr4_mode" Fattr4Mode,
    "fattr4_mode_set_masked" Fattr4ModeSetMasked,
    "fattr4_mode_umask" Fattr4ModeUmask,
    "fattr4_mounted_on_fileid" Fattr4MountedOnFileid,
    "fattr4_named_attr" Fattr4NamedAttr,
    "fattr4_no_trunc" Fattr4NoTrunc,
    "fattr4_numlinks" Fattr4Numlinks,
    "fattr4_owner" Fattr4Owner,
    "fattr4_owner_group" Fattr4OwnerGroup,
    "fattr4_quota_avail_hard" Fattr4QuotaAvailHard,
    "fattr4_quota_avail_soft" Fattr4QuotaAvailSoft,
    "fattr4_quota_used" Fattr4QuotaUsed,
    "fattr4_rawdev" Fattr4Rawdev,
    "fattr4_rdattr_error" Fattr4RdattrError,
    "fattr4_retentevt_get" Fattr4RetentevtGet,
    "fattr4_retentevt_set" Fattr4RetentevtSet,
    "fattr4_retention_get" Fattr4RetentionGet,
    "fattr4_retention_hold" Fattr4RetentionHold,
    "fattr4_retention_set" Fattr4RetentionSet,
    "fattr4_sacl" Fattr4Sacl,
    "fattr4_sec_label" Fattr4SecLabel,
    "fattr4_size" Fattr4Size,
    "fattr4_space_avail" Fattr4SpaceAvail,
    "fattr4_space_free" Fattr4SpaceFree,
    "fattr4_space_freed" Fattr4SpaceFreed,
    "fattr4_space_total" Fattr4SpaceTotal,
    "fattr4_space_used" Fattr4SpaceUsed,
    "fattr4_suppattr_exclcreat" Fattr4SuppattrExclcreat,
    "fattr4_supported_attrs" Fattr4SupportedAttrs,
    "fattr4_symlink_support" Fattr4SymlinkSupport,
    "fattr4_system" Fattr4System,
    "fattr4_time_access" Fattr4TimeAccess,
    "fattr4_time_access_set" Fattr4TimeAccessSet,
    "fattr4_time_backup" Fattr4TimeBackup,
    "fattr4_time_create" Fattr4TimeCreate,
    "fattr4_time_delta" Fattr4TimeDelta,
    "fattr4_time_metadata" Fattr4TimeMetadata,
    "fattr4_time_modify" Fattr4TimeModify,
    "fattr4_time_modify_set" Fattr4TimeModifySet,
    "fattr4_type" Fattr4Type,
    "fattr4_unique_handles" Fattr4UniqueHandles,
    "fattr4_xattr_support" Fattr4XattrSupport,
    "filelayout_hint_care4" FilelayoutHintCare4,
    "FREE_STATEID4args" FreeStateid4Args,
    "FREE_STATEID4res" FreeStateid4Res,
    "fs4_status" Fs4Status,
    "fs4_status_type" Fs4StatusType,
    "fs_charset_cap4" FsCharsetCap4,
    "fs_location4" FsLocation4,
    "fs_locations4" FsLocations4,
    "fs_locations_info4" FsLocationsInfo4,
    "fs_locations_item4" FsLocationsItem4,
    "fs_locations_server4" FsLocationsServer4,
    "fsid4" Fsid4,
    "gddrnf4_status" Gddrnf4Status,
    "GET_DIR_DELEGATION4args" GetDirDelegation4Args,
    "GET_DIR_DELEGATION4res" GetDirDelegation4Res,
    "GET_DIR_DELEGATION4res_non_fatal" GetDirDelegation4ResNonFatal,
    "GET_DIR_DELEGATION4resok" GetDirDelegation4Resok,
    "GETATTR4args" Getattr4Args,
    "GETATTR4res" Getattr4Res,
    "GETATTR4resok" Getattr4Resok,
    "GETDEVICEINFO4args" Getdeviceinfo4Args,
    "GETDEVICEINFO4res" Getdeviceinfo4Res,
    "GETDEVICEINFO4resok" Getdeviceinfo4Resok,
    "GETDEVICELIST4args" Getdevicelist4Args,
    "GETDEVICELIST4res" Getdevicelist4Res,
    "GETDEVICELIST4resok" Getdevicelist4Resok,
    "GETFH4res" Getfh4Res,
    "GETFH4resok" Getfh4Resok,
    "GETXATTR4args" Getxattr4Args,
    "GETXATTR4res" Getxattr4Res,
    "gss_cb_handles4" GssCbHandles4,
    "gsshandle4_t" Gsshandle4T,
    "ILLEGAL4res" Illegal4Res,
    "IO_ADVISE4args" IoAdvise4Args,
    "IO_ADVISE4res" IoAdvise4Res,
    "IO_ADVISE4resok" IoAdvise4Resok,
    "IO_ADVISE_type4" IoAdviseType4,
    "io_info4" IoInfo4,
    "labelformat_spec4" LabelformatSpec4,
    "layout4" Layout4,
    "layout_content4" LayoutContent4,
    "LAYOUTCOMMIT4args" Layoutcommit4Args,
    "LAYOUTCOMMIT4res" Layoutcommit4Res,
    "LAYOUTCOMMIT4resok" Layoutcommit4Resok,
    "LAYOUTERROR4args" Layouterror4Args,
    "LAYOUTERROR4res" Layouterror4Res,
    "LAYOUTGET4args" Layoutget4Args,
    "LAYOUTGET4res" Layoutget4Res,
    "LAYOUTGET4resok" Layoutget4Resok,
    "layouthint4" Layouthint4,
    "layoutiomode4" Layoutiomode4,
    "layoutrecall4" Layoutrecall4,
    "layoutrecall_file4" LayoutrecallFile4,
    "layoutrecall_type4" LayoutrecallType4,
    "layoutreturn4" Layoutreturn4,
    "LAYOUTRETURN4args" Layoutreturn4Args,
    "LAYOUTRETURN4res" Layoutreturn4Res,
    "layoutreturn_file4" LayoutreturnFile4,
    "layoutreturn_stateid" LayoutreturnStateid,
    "layoutreturn_type4" LayoutreturnType4,
    "LAYOUTSTATS4args" Layoutstats4Args,
    "LAYOUTSTATS4res" Layoutstats4Res,
    "layouttype4" Layouttype4,
    "layoutupdate4" Layoutupdate4,
    "length4" Length4,
    "limit_by4" LimitBy4,
    "LINK4args" Link4Args,
    "LINK4res" Link4Res,
    "LINK4resok" Link4Resok,
    "linktext4" Linktext4,
    "LISTXATTRS4args" Listxattrs4Args,
    "LISTXATTRS4res" Listxattrs4Res,
    "LISTXATTRS4resok" Listxattrs4Resok,
    "LOCK4args" Lock4Args,
    "LOCK4denied" Lock4Denied,
    "LOCK4res" Lock4Res,
    "LOCK4resok" Lock4Resok,
    "lock_owner4" LockOwner4,
    "locker4" Locker4,
    "LOCKT4args" Lockt4Args,
    "LOCKT4res" Lockt4Res,
    "LOCKU4args" Locku4Args,
    "LOCKU4res" Locku4Res,
    "LOOKUP4args" Lookup4Args,
    "LOOKUP4res" Lookup4Res,
    "LOOKUPP4res" Lookupp4Res,
    "mdsthreshold4" Mdsthreshold4,
    "mode4" Mode4,
    "mode_masked4" ModeMasked4,
    "mode_umask4" ModeUmask4,
    "multipath_list4" MultipathList4,
    "netaddr4" Netaddr4,
    "netloc4" Netloc4,
    "netloc_type4" NetlocType4,
    "newoffset4" Newoffset4,
    "newsize4" Newsize4,
    "newtime4" Newtime4,
    "nfl_util4" NflUtil4,
    "nfs_argop4" NfsArgop4,
    "nfs_cb_argop4" NfsCbArgop4,
    "nfs_cb_opnum4" NfsCbOpnum4,
    "nfs_cb_resop4" NfsCbResop4,
    "nfs_client_id4" NfsClientId4,
    "nfs_cookie4" NfsCookie4,
    "nfs_fh4" NfsFh4,
    "nfs_ftype4" NfsFtype4,
    "nfs_impl_id4" NfsImplId4,
    "nfs_lease4" NfsLease4,
    "nfs_lock_type4" NfsLockType4,
    "nfs_modified_limit4" NfsModifiedLimit4,
    "nfs_opnum4" NfsOpnum4,
    "nfs_resop4" NfsResop4,
    "nfs_space_limit4" NfsSpaceLimit4,
    "nfsace4" Nfsace4,
    "nfsacl41" Nfsacl41,
    "nfsstat4" Nfsstat4,
    "nfstime4" Nfstime4,
    "nfsv4_1_file_layout4" Nfsv41FileLayout4,
    "nfsv4_1_file_layout_ds_addr4" Nfsv41FileLayoutDsAddr4,
    "nfsv4_1_file_layouthint4" Nfsv41FileLayouthint4,
    "notify4" Notify4,
    "notify_add4" NotifyAdd4,
    "notify_attr4" NotifyAttr4,
    "notify_deviceid_change4" NotifyDeviceidChange4,
    "notify_deviceid_delete4" NotifyDeviceidDelete4,
    "notify_deviceid_type4" NotifyDeviceidType4,
    "notify_entry4" NotifyEntry4,
    "notify_remove4" NotifyRemove4,
    "notify_rename4" NotifyRename4,
    "notify_type4" NotifyType4,
    "notify_verifier4" NotifyVerifier4,
    "notifylist4" Notifylist4,
    "NVERIFY4args" Nverify4Args,
    "NVERIFY4res" Nverify4Res,
    "OFFLOAD_CANCEL4args" OffloadCancel4Args,
    "OFFLOAD_CANCEL4res" OffloadCancel4Res,
    "offload_info4" OffloadInfo4,
    "OFFLOAD_STATUS4args" OffloadStatus4Args,
    "OFFLOAD_STATUS4res" OffloadStatus4Res,
    "OFFLOAD_STATUS4resok" OffloadStatus4Resok,
    "offset4" Offset4,
    "OPEN4args" Open4Args,
    "OPEN4res" Open4Res,
    "OPEN4resok" Open4Resok,
    "open_claim4" OpenClaim4,
    "open_claim_delegate_cur4" OpenClaimDelegateCur4,
    "open_claim_type4" OpenClaimType4,
    "OPEN_CONFIRM4args" OpenConfirm4Args,
    "OPEN_CONFIRM4res" OpenConfirm4Res,
    "OPEN_CONFIRM4resok" OpenConfirm4Resok,
    "open_delegation4" OpenDelegation4,
    "open_delegation_type4" OpenDelegationType4,
    "OPEN_DOWNGRADE4args" OpenDowngrade4Args,
    "OPEN_DOWNGRADE4res" OpenDowngrade4Res,
    "OPEN_DOWNGRADE4resok" OpenDowngrade4Resok,
    "open_none_delegation4" OpenNoneDelegation4,
    "open_owner4" OpenOwner4,
    "open_read_delegation4" OpenReadDelegation4,
    "open_to_lock_owner4" OpenToLockOwner4,
    "open_write_delegation4" OpenWriteDelegation4,
    "OPENATTR4args" Openattr4Args,
    "OPENATTR4res" Openattr4Res,
    "openflag4" Openflag4,
    "opentype4" Opentype4,
    "pathname4" Pathname4,
    "policy4" Policy4,
    "prev_entry4" PrevEntry4,
    "PUTFH4args" Putfh4Args,
    "PUTFH4res" Putfh4Res,
    "PUTPUBFH4res" Putpubfh4Res,
    "PUTROOTFH4res" Putrootfh4Res,
    "qop4" Qop4,
    "READ4args" Read4Args,
    "READ4res" Read4Res,
    "READ4resok" Read4Resok,
    "READ_PLUS4args" ReadPlus4Args,
    "READ_PLUS4res" ReadPlus4Res,
    "read_plus_content" ReadPlusContent,
    "read_plus_res4" ReadPlusRes4,
    "READDIR4args" Readdir4Args,
    "READDIR4res" Readdir4Res,
    "READDIR4resok" Readdir4Resok,
    "READLINK4res" Readlink4Res,
    "READLINK4resok" Readlink4Resok,
    "RECLAIM_COMPLETE4args" ReclaimComplete4Args,
    "RECLAIM_COMPLETE4res" ReclaimComplete4Res,
    "referring_call4" ReferringCall4,
    "referring_call_list4" ReferringCallList4,
    "RELEASE_LOCKOWNER4args" ReleaseLockowner4Args,
    "RELEASE_LOCKOWNER4res" ReleaseLockowner4Res,
    "REMOVE4args" Remove4Args,
    "REMOVE4res" Remove4Res,
    "REMOVE4resok" Remove4Resok,
    "REMOVEXATTR4args" Removexattr4Args,
    "REMOVEXATTR4res" Removexattr4Res,
    "RENAME4args" Rename4Args,
    "RENAME4res" Rename4Res,
    "RENAME4resok" Rename4Resok,
    "RENEW4args" Renew4Args,
    "RENEW4res" Renew4Res,
    "RESTOREFH4res" Restorefh4Res,
    "retention_get4" RetentionGet4,
    "retention_set4" RetentionSet4,
    "rpc_gss_svc_t" RpcGssSvcT,
    "rpcsec_gss_info" RpcsecGssInfo,
    "SAVEFH4res" Savefh4Res,
    "sec_label4" SecLabel4,
    "sec_oid4" SecOid4,
    "secinfo4" Secinfo4,
    "SECINFO4args" Secinfo4Args,
    "SECINFO4res" Secinfo4Res,
    "SECINFO4resok" Secinfo4Resok,
    "SECINFO_NO_NAME4args" SecinfoNoName4Args,
    "SECINFO_NO_NAME4res" SecinfoNoName4Res,
    "secinfo_style4" SecinfoStyle4,
    "secret4" Secret4,
    "SEEK4args" Seek4Args,
    "SEEK4res" Seek4Res,
    "seek_res4" SeekRes4,
    "seqid4" Seqid4,
    "SEQUENCE4args" Sequence4Args,
    "SEQUENCE4res" Sequence4Res,
    "SEQUENCE4resok" Sequence4Resok,
    "sequenceid4" Sequenceid4,
    "server_owner4" ServerOwner4,
    "sessionid4" Sessionid4,
    "SET_SSV4args" SetSsv4Args,
    "SET_SSV4res" SetSsv4Res,
    "SET_SSV4resok" SetSsv4Resok,
    "SETATTR4args" Setattr4Args,
    "SETATTR4res" Setattr4Res,
    "SETCLIENTID4args" Setclientid4Args,
    "SETCLIENTID4res" Setclientid4Res,
    "SETCLIENTID4resok" Setclientid4Resok,
    "SETCLIENTID_CONFIRM4args" SetclientidConfirm4Args,
    "SETCLIENTID_CONFIRM4res" SetclientidConfirm4Res,
    "settime4" Settime4,
    "SETXATTR4args" Setxattr4Args,
    "SETXATTR4res" Setxattr4Res,
    "setxattr_option4" SetxattrOption4,
    "slotid4" Slotid4,
    "specdata4" Specdata4,
    "ssa_digest_input4" SsaDigestInput4,
    "ssr_digest_input4" SsrDigestInput4,
    "ssv_mic_plain_tkn4" SsvMicPlainTkn4,
    "ssv_mic_tkn4" SsvMicTkn4,
    "ssv_prot_info4" SsvProtInfo4,
    "ssv_seal_cipher_tkn4" SsvSealCipherTkn4,
    "ssv_seal_plain_tkn4" SsvSealPlainTkn4,
    "ssv_sp_parms4" SsvSpParms4,
    "ssv_subkey4" SsvSubkey4,
    "stable_how4" StableHow4,
    "state_owner4" StateOwner4,
    "state_protect4_a" StateProtect4A,
    "state_protect4_r" StateProtect4R,
    "state_protect_how4" StateProtectHow4,
    "state_protect_ops4" StateProtectOps4,
    "stateid4" Stateid4,
    "TEST_STATEID4args" TestStateid4Args,
    "TEST_STATEID4res" TestStateid4Res,
    "TEST_STATEID4resok" TestStateid4Resok,
    "threshold4_read_iosize" Threshold4ReadIosize,
    "threshold4_read_size" Threshold4ReadSize,
    "threshold4_write_iosize" Threshold4WriteIosize,
    "threshold4_write_size" Threshold4WriteSize,
    "threshold_item4" ThresholdItem4,
    "time_how4" TimeHow4,
    "utf8str_cis" Utf8StrCis,
    "utf8str_cs" Utf8StrCs,
    "utf8str_mixed" Utf8StrMixed,
    "utf8string" Utf8String,
    "verifier4" Verifier4,
    "VERIFY4args" Verify4Args,
    "VERIFY4res" Verify4Res,
    "WANT_DELEGATION4args" WantDelegation4Args,
    "WANT_DELEGATION4res" WantDelegation4Res,
    "why_no_delegation4" WhyNoDelegation4,
    "WRITE4args" Write4Args,
    "WRITE4res" Write4Res,
    "WRITE4resok" Write4Resok,
    "write_response4" WriteResponse4,
    "WRITE_SAME4args" WriteSame4Args,
    "WRITE_SAME4res" WriteSame4Res,
    "xattrkey4" Xattrkey4,
    "xattrvalue4" Xattrvalue4,
}
