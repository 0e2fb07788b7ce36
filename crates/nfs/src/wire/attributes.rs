//! `fattr4`: attributes of files, each with its number, its type and what may be done with it.

use super::generated::*;
use super::{Attribute, Bitmap4};
use crate::xdr::{Decoder, Encoder, XdrError};

/// Attributes that SETATTR, OPEN and CREATE may set (RFC 8881, sections 5.6 and 5.7; RFC 7862, section
/// 12.2; RFC 8275).
pub const SETTABLE: Bitmap4 = Bitmap4::of(&[
    FATTR4_SIZE,
    FATTR4_ACL,
    FATTR4_ARCHIVE,
    FATTR4_HIDDEN,
    FATTR4_MIMETYPE,
    FATTR4_MODE,
    FATTR4_OWNER,
    FATTR4_OWNER_GROUP,
    FATTR4_SYSTEM,
    FATTR4_TIME_BACKUP,
    FATTR4_TIME_CREATE,
    FATTR4_DACL,
    FATTR4_SACL,
    FATTR4_RETENTION_HOLD,
    FATTR4_SEC_LABEL,
    FATTR4_TIME_ACCESS_SET,
    FATTR4_TIME_MODIFY_SET,
    FATTR4_LAYOUT_HINT,
    FATTR4_RETENTION_SET,
    FATTR4_RETENTEVT_SET,
    FATTR4_MODE_SET_MASKED,
    FATTR4_MODE_UMASK,
]);

/// Attributes that can be set and not read: GETATTR, READDIR and VERIFY of them is an error.
pub const WRITE_ONLY: Bitmap4 = Bitmap4::of(&[
    FATTR4_TIME_ACCESS_SET,
    FATTR4_TIME_MODIFY_SET,
    FATTR4_LAYOUT_HINT,
    FATTR4_RETENTION_SET,
    FATTR4_RETENTEVT_SET,
    FATTR4_MODE_SET_MASKED,
    FATTR4_MODE_UMASK,
]);

/// Why an `fattr4` cannot be read.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum AttributeError {
    /// The attribute has no name here, so that nobody knows how long its value is
    /// (NFS4ERR_ATTRNOTSUPP).
    #[error("attribute {0} is not known")]
    Unknown(u32),
    /// The mask has numbers of 128 or more (NFS4ERR_ATTRNOTSUPP).
    #[error("an attribute has a number beyond 127")]
    Beyond,
    /// The values are not as the mask announces them (NFS4ERR_BADXDR).
    #[error("attribute values are damaged: {0}")]
    Xdr(#[from] XdrError),
}

impl<'a> Fattr4<'a> {
    /// The attributes in order, lowest number first. After an error there are no more.
    pub fn attributes(
        &self,
    ) -> impl Iterator<Item = Result<Attribute<'a>, AttributeError>> + use<'a> {
        let mut numbers = self.attrmask.iter();
        let mut values = Decoder::new(self.attr_vals.0);
        let mut beyond = self.attrmask.has_beyond();
        let mut done = false;
        std::iter::from_fn(move || {
            if done {
                return None;
            }
            let next = match numbers.next() {
                Some(number) => Attribute::decode(number, &mut values),
                None if std::mem::take(&mut beyond) => Err(AttributeError::Beyond),
                None => {
                    done = true;
                    return values.end().err().map(|left| Err(left.into()));
                }
            };
            done |= next.is_err();
            Some(next)
        })
    }
}

/// Puts an `fattr4` of those wanted attributes that `value` gives, which is asked for each in order.
/// The values are put in place, without a copy in between.
pub fn put_attributes<'v>(
    to: &mut Encoder,
    wanted: &Bitmap4,
    mut value: impl FnMut(u32) -> Option<Attribute<'v>>,
) {
    let words = wanted
        .iter()
        .last()
        .map_or(0, |last| last as usize / 32 + 1);
    to.len(words);
    let mut mask: [_; 4] = std::array::from_fn(|word| (word < words).then(|| (to.later(), 0)));
    let length = to.later();
    let start = to.size();
    for number in wanted.iter() {
        if let Some(attribute) = value(number) {
            assert_eq!(
                attribute.number(),
                number,
                "the attribute that was asked for"
            );
            attribute.encode_value(to);
            if let Some((_, bits)) = &mut mask[number as usize / 32] {
                *bits |= 1 << (number % 32);
            }
        }
    }
    for (later, bits) in mask.into_iter().flatten() {
        to.fill_in(later, bits);
    }
    let size = to.size() - start;
    to.fill_in(
        length,
        u32::try_from(size).expect("attributes are below 4 GiB"),
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::xdr::{Opaque, from_bytes};

    fn encoded(wanted: &Bitmap4, given: &[Attribute<'_>]) -> Vec<u8> {
        let mut to = Encoder::default();
        put_attributes(&mut to, wanted, |number| {
            let mut given = given.iter();
            given.find(|one| one.number() == number).cloned()
        });
        to.into_bytes()
    }

    #[test]
    fn only_what_is_wanted_and_there_is_put() {
        let given = [
            Attribute::Size(7),
            Attribute::Owner(Opaque(b"root")),
            Attribute::Mode(0o644),
        ];
        let wanted = Bitmap4::of(&[FATTR4_TYPE, FATTR4_SIZE, FATTR4_OWNER]);
        let bytes = encoded(&wanted, &given);
        let fattr: Fattr4<'_> = from_bytes(&bytes).expect("attributes");
        let read: Result<Vec<_>, _> = fattr.attributes().collect();
        assert_eq!(read, Ok(given[..2].to_vec()));
        assert_eq!(fattr.attrmask, Bitmap4::of(&[FATTR4_SIZE, FATTR4_OWNER]));
        let none = encoded(&Bitmap4::EMPTY, &given);
        assert_eq!(none, [0; 8], "no words, no values");
    }

    #[test]
    fn damaged_masks_and_values_are_told_apart() {
        let errors = |mask: &[u32], values: &[u8]| {
            let attrmask = mask.iter().copied().collect();
            let attr_vals = Opaque(values);
            let fattr = Fattr4 {
                attrmask,
                attr_vals,
            };
            let found: Vec<_> = fattr.attributes().filter_map(Result::err).collect();
            assert!(found.len() <= 1, "nothing follows an error");
            found.first().copied()
        };
        assert_eq!(errors(&[FATTR4_SIZE], &[0; 8]), None);
        assert_eq!(
            errors(&[FATTR4_SIZE], &[0; 7]),
            Some(XdrError::Short.into())
        );
        assert_eq!(
            errors(&[FATTR4_SIZE], &[0; 12]),
            Some(XdrError::Left(4).into())
        );
        assert_eq!(
            errors(&[127, 0], &[0; 4]),
            Some(AttributeError::Unknown(127))
        );
        let words = [5u32, 0, 0, 0, 0, 1, 0].map(u32::to_be_bytes).concat();
        let fattr: Fattr4<'_> = from_bytes(&words).expect("attributes");
        let read: Vec<_> = fattr.attributes().collect();
        assert_eq!(read, [Err(AttributeError::Beyond)]);
    }

    #[test]
    fn what_can_only_be_written_can_be_written() {
        assert!(WRITE_ONLY.without(&SETTABLE).is_empty());
        assert!(
            SETTABLE
                .iter()
                .all(|number| Attribute::name_of(number).is_some())
        );
    }
}
