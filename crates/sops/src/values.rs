//! Decrypts all values of a file.

use super::{Error, Keys, cipher, leaf::Leaf, metadata::Metadata};

/// Decrypts the values in order and checks the MAC over them.
pub(super) fn open_values(
    leaves: &[Leaf<'_>],
    metadata: &Metadata,
    keys: &Keys,
) -> Result<Vec<Option<cipher::Plain>>, Error> {
    let key = keys.data_key(metadata)?;
    let mut mac = metadata.mac_hash();
    let mut values = Vec::with_capacity(leaves.len());
    for leaf in leaves {
        let is_encrypted = metadata.rule.is_encrypted(&leaf.path);
        let plain = match is_encrypted {
            true if leaf.text.is_empty() => None,
            true => Some(
                cipher::open(leaf.text, &key, &leaf.authenticated())?
                    .ok_or_else(|| Error::Plain(leaf.name()))?,
            ),
            false => None,
        };
        if is_encrypted || !metadata.is_mac_only_encrypted {
            match &plain {
                Some(plain) => mac.add(&plain.bytes),
                None => mac.add(leaf.canonical().as_bytes()),
            }
        }
        values.push(plain);
    }
    let expected = cipher::open(&metadata.mac, &key, &metadata.last_modified)?
        .ok_or_else(|| Error::Malformed("its MAC is not encrypted".to_owned()))?;
    if mac.finish().as_bytes() != expected.bytes {
        return Err(Error::Mac);
    }
    Ok(values)
}
