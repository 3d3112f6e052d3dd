//! Values that may be secret: they become variables, so that they do not get into Git.

use std::collections::BTreeMap;

use driftless_model::Mask;
use serde_json::{Map, Value};

/// The variables of one application.
pub(super) struct Secrets {
    pub(super) variables: BTreeMap<String, String>,
    /// Finds the secret values of all services also where nothing but the value tells. Texts are compared only, so its key does not matter.
    mask: Mask,
}

/// Lists of words that may contain a password as an argument.
const COMMANDS: &[&str] = &["command", "entrypoint"];

impl Secrets {
    /// Those of an application with these services, networks and volumes.
    pub(super) fn of(document: &Value) -> Self {
        let services = document.get("services").and_then(Value::as_object).into_iter().flatten();
        let sections = services.flat_map(|(_, service)| {
            ["environment", "labels"].into_iter().filter_map(|section| service.get(section)?.as_object())
        });
        let texts =
            sections.flatten().filter_map(|(name, value)| Some((name.as_str(), unescaped(value.as_str()?))));
        let texts: Vec<(&str, String)> = texts.collect();
        let mask =
            Mask::new([0; 32]).with_variables(texts.iter().map(|(name, value)| (*name, value.as_str())));
        Self { variables: BTreeMap::new(), mask }
    }

    /// Replaces the values of one service that may be secret by references to variables.
    pub(super) fn take(&mut self, name: &str, service: &mut Map<String, Value>) {
        let mask = self.mask.clone();
        for section in ["environment", "labels"] {
            for (key, value) in service.get_mut(section).and_then(Value::as_object_mut).into_iter().flatten()
            {
                let Some(text) = value.as_str().map(unescaped) else { continue };
                if mask.value(key, &text) != text {
                    *value = Value::String(self.reference(key, name, text));
                }
            }
        }
        self.options(name, service.get_mut("annotations"));
        self.options(name, service.get_mut("logging").and_then(|logging| logging.get_mut("options")));
        for section in COMMANDS {
            self.words(&mask, name, section, service.get_mut(*section));
        }
        let test = service.get_mut("healthcheck").and_then(|check| check.get_mut("test"));
        self.words(&mask, name, "healthcheck", test);
    }

    /// Replaces the options of one network or volume that may be secret.
    pub(super) fn take_options(&mut self, name: &str, object: &mut Map<String, Value>) {
        self.options(name, object.get_mut("driver_opts"));
    }

    /// Options: one of a share of another host, such as `o`, has a password among its words.
    fn options(&mut self, name: &str, options: Option<&mut Value>) {
        let mask = self.mask.clone();
        for (key, value) in options.and_then(Value::as_object_mut).into_iter().flatten() {
            let Some(text) = value.as_str().map(unescaped) else { continue };
            let has_secret = text.split([',', '=', ' ']).any(Mask::is_telling);
            if has_secret || mask.value(key, &text) != text || mask.text(&text) != text {
                *value = Value::String(self.reference(&format!("{name}_{key}"), name, text));
            }
        }
    }

    /// Arguments: a password may be the word after its option, so words are judged together.
    fn words(&mut self, mask: &Mask, name: &str, section: &str, list: Option<&mut Value>) {
        let Some(list) = list.and_then(Value::as_array_mut) else { return };
        let words: Vec<String> =
            list.iter().map(|word| unescaped(word.as_str().unwrap_or_default())).collect();
        let masked = mask.arguments(&words);
        for (index, ((value, word), masked)) in list.iter_mut().zip(words).zip(masked).enumerate() {
            if masked != word {
                *value = Value::String(self.reference(&format!("{section}_{}", index + 1), name, word));
            }
        }
    }

    /// Sets a variable, and returns the reference to it.
    fn reference(&mut self, key: &str, service: &str, value: String) -> String {
        let plain = |text: &str| -> String {
            let letter =
                |letter: char| if letter.is_ascii_alphanumeric() { letter.to_ascii_uppercase() } else { '_' };
            text.chars().map(letter).collect()
        };
        let (short, long) = (plain(key), format!("{}_{}", plain(service), plain(key)));
        let short = if short.starts_with(|letter: char| letter.is_ascii_digit()) {
            format!("_{short}")
        } else {
            short
        };
        let long =
            if long.starts_with(|letter: char| letter.is_ascii_digit()) { format!("_{long}") } else { long };
        let further = (2..).map(|number| format!("{long}_{number}"));
        let is_free = |variable: &String| self.variables.get(variable).is_none_or(|known| *known == value);
        let variable = [short, long.clone()].into_iter().chain(further).find(is_free).unwrap_or(long);
        let reference = format!("${{{variable}}}");
        self.variables.insert(variable, value);
        reference
    }
}

/// The text without the doubled dollars of a Compose file.
fn unescaped(text: &str) -> String {
    text.replace("$$", "$")
}

/// The variables as the text of a `.env` file.
pub fn env_file(variables: &BTreeMap<String, String>) -> String {
    let line = |(name, value): (&String, &String)| {
        if value.contains(['\'', '\\', '\r']) {
            let escaped =
                value.replace('\\', "\\\\").replace('"', "\\\"").replace('$', "\\$").replace('\r', "\\r");
            format!("{name}=\"{escaped}\"\n")
        } else {
            format!("{name}='{value}'\n")
        }
    };
    variables.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn password_is_found_by_its_value() {
        let mut document = json!({"services": {
            "minio": {"environment": {"MINIO_ROOT_PASSWORD": "s3cr3tvalue", "ENDPOINT": "minio:9000"}},
            "setup": {
                "command": ["sh", "-c", "mc alias set local http://minio:9000 admin s3cr3tvalue"],
                "environment": {"CACHE": "redis,s3cr3tvalue,0", "ENDPOINT": "minio:9000"},
            },
        }});
        let mut secrets = Secrets::of(&document);
        for (name, service) in document["services"].as_object_mut().unwrap() {
            secrets.take(name, service.as_object_mut().unwrap());
        }
        assert!(!document.to_string().contains("s3cr3tvalue"), "{document}");
        assert_eq!(document["services"]["setup"]["environment"]["ENDPOINT"], "minio:9000");
    }

    #[test]
    fn passwords_in_options_become_variables() {
        let mut volume = json!({"driver_opts": {"type": "cifs", "o": "username=me,password=hunter2$$x", "device": "//nas/a"}});
        let mut service = json!({
            "logging": {"driver": "splunk", "options": {"splunk-token": "176FCEBF", "splunk-url": "https://s.example.com"}},
            "annotations": {"api.key": "wJalrXUtnFEMI"},
        });
        let mut secrets = Secrets::of(&json!({"services": {"web": service}}));
        secrets.take_options("media", volume.as_object_mut().unwrap());
        secrets.take("web", service.as_object_mut().unwrap());
        let text = format!("{volume}{service}");
        for secret in ["hunter2", "176FCEBF", "wJalrXUtnFEMI"] {
            assert!(!text.contains(secret), "{text}");
        }
        assert_eq!(volume["driver_opts"]["o"], "${MEDIA_O}");
        assert_eq!(volume["driver_opts"]["device"], "//nas/a");
        assert_eq!(service["logging"]["options"]["splunk-url"], "https://s.example.com");
        let expected = [
            ("MEDIA_O", "username=me,password=hunter2$x"),
            ("WEB_API_KEY", "wJalrXUtnFEMI"),
            ("WEB_SPLUNK_TOKEN", "176FCEBF"),
        ];
        let variables: Vec<(&str, &str)> =
            secrets.variables.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        assert_eq!(variables, expected);
    }
}
