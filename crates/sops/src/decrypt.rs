//! Recognises the form of an encrypted file and decrypts it.

use super::{Error, Keys, cipher, dotenv, ini, keys, yaml};

/// The form of an encrypted file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// A whole file encrypted with age.
    Age,
    /// SOPS: one `KEY=value` a line.
    Dotenv,
    /// SOPS: sections with `key = value`.
    Ini,
    /// SOPS: YAML, or JSON, which is YAML.
    Yaml,
    /// SOPS: JSON whose `data` is the whole content.
    Binary,
}

/// The decrypted content of a file, or `None` if it is not encrypted. The path chooses between JSON and binary, as SOPS
/// does, and names the file in errors.
pub fn decrypt(path: &str, bytes: &[u8], keys: &Keys) -> Result<Option<Vec<u8>>, Error> {
    let Some(form) = form_of(path, bytes)? else { return Ok(None) };
    if form == Form::Age {
        return keys.open_age_file(bytes).map(Some);
    }
    let text = std::str::from_utf8(bytes).map_err(|_| Error::Malformed("it is not UTF-8".to_owned()))?;
    let plain = match form {
        Form::Dotenv => dotenv::decrypt(text, keys)?.into_bytes(),
        Form::Ini => ini::decrypt(text, keys)?.into_bytes(),
        Form::Yaml => yaml::decrypt(text, keys)?.into_bytes(),
        Form::Binary => yaml::decrypt_binary(text, keys)?,
        Form::Age => return Ok(None),
    };
    Ok(Some(plain))
}

/// Recognises an encrypted file by its metadata, not by its name. A file that lost its metadata is an error, because its
/// encrypted values must not be taken for plain ones.
fn form_of(path: &str, bytes: &[u8]) -> Result<Option<Form>, Error> {
    if keys::is_age_file(bytes) {
        return Ok(Some(Form::Age));
    }
    let Ok(text) = std::str::from_utf8(bytes) else { return Ok(None) };
    // Most files are plain: the words of the metadata and of encrypted values are searched before anything is parsed.
    let may_have_metadata = text.contains("sops") && (text.contains("mac") || text.contains("lastmodified"));
    let may_have_values = text.contains(cipher::START);
    if !may_have_metadata && !may_have_values {
        return Ok(None);
    }
    if dotenv::is_encrypted(text) {
        return Ok(Some(Form::Dotenv));
    }
    if ini::is_encrypted(text) {
        return Ok(Some(Form::Ini));
    }
    if may_have_values && ini::has_encrypted_value(text) {
        return Err(Error::NoMetadata);
    }
    let is_named_yaml = has_extension(path, &["json", "yaml", "yml"]);
    let documents = match yaml::parse(text) {
        Ok(documents) => documents,
        Err(error) if yaml::has_mac(text) || (is_named_yaml && yaml::has_value_line(text)) => {
            return Err(error);
        }
        Err(_) => return Ok(None),
    };
    if !yaml::is_encrypted(&documents) {
        let has_values = may_have_values && yaml::has_encrypted_value(&documents);
        return if has_values { Err(Error::NoMetadata) } else { Ok(None) };
    }
    let is_binary = yaml::has_only_data(&documents) && !is_named_yaml;
    Ok(Some(if is_binary { Form::Binary } else { Form::Yaml }))
}

fn has_extension(path: &str, extensions: &[&str]) -> bool {
    let extension = path.rsplit_once('.').map(|(_, extension)| extension.to_ascii_lowercase());
    extension.is_some_and(|extension| extensions.contains(&extension.as_str()))
}
