//! Values that may be secret: they become variables, so that they do not get into Git.

use std::collections::BTreeMap;

use driftless_model::Mask;
use serde_json::{Map, Value};

/// The variables of one application.
#[derive(Default)]
pub(super) struct Secrets {
    pub(super) variables: BTreeMap<String, String>,
}

/// Lists of words that may contain a password as an argument.
const COMMANDS: &[&str] = &["command", "entrypoint"];

impl Secrets {
    /// Replaces the values of one service that may be secret by references to variables.
    pub(super) fn take(&mut self, name: &str, service: &mut Map<String, Value>) {
        // Texts are compared only, so the key of the mask does not matter.
        let mask = Mask::new([0; 32]);
        for section in ["environment", "labels"] {
            for (key, value) in service.get_mut(section).and_then(Value::as_object_mut).into_iter().flatten()
            {
                let Some(text) = value.as_str().map(unescaped) else { continue };
                if mask.value(key, &text) != text {
                    *value = Value::String(self.reference(key, name, text));
                }
            }
        }
        for section in COMMANDS {
            self.words(&mask, name, section, service.get_mut(*section));
        }
        let test = service.get_mut("healthcheck").and_then(|check| check.get_mut("test"));
        self.words(&mask, name, "healthcheck", test);
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
