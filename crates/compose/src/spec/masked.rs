//! The printed form of a project with secrets hidden.

use driftless_model::Mask;
use serde_json::{Map, Value};

/// Keys whose maps hold text by name.
pub(crate) const TEXT_BY_NAME: &[&str] =
    &["environment", "labels", "annotations", "args", "driver_opts", "options", "storage_opt"];

/// Keys with the arguments of a program.
pub(crate) const ARGUMENTS: &[&str] = &["command", "entrypoint", "test"];

/// Hides what the rule of [`Mask`] hides.
pub(crate) fn hide(project: &mut Value, mask: &Mask) {
    let mask = with_values(project, mask);
    hide_below(project, &mask);
}

/// A mask that knows the names and the secret variables of the services.
fn with_values(project: &Value, mask: &Mask) -> Mask {
    let none = Map::new();
    let services = project.get("services").and_then(Value::as_object).unwrap_or(&none);
    let groups = ["services", "networks", "volumes"];
    let names = groups.iter().filter_map(|group| project.get(*group)?.as_object()).flat_map(Map::keys);
    let images = services.values().filter_map(|service| service.get("image")?.as_str());
    let project_name = project.get("name").and_then(Value::as_str);
    let variables = services.values().flat_map(|service| {
        let maps = ["environment", "labels"].into_iter().filter_map(|key| service.get(key)?.as_object());
        maps.flatten().filter_map(|(name, value)| Some((name.as_str(), value.as_str()?))).collect::<Vec<_>>()
    });
    mask.with_public_names(names.map(String::as_str).chain(images).chain(project_name))
        .with_variables(variables)
}

fn hide_below(value: &mut Value, mask: &Mask) {
    match value {
        Value::String(text) => *text = mask.name(text),
        Value::Array(items) => items.iter_mut().for_each(|item| hide_below(item, mask)),
        Value::Object(entries) => {
            for (key, value) in entries {
                match value {
                    Value::Array(items) if ARGUMENTS.contains(&key.as_str()) => mask.json_arguments(items),
                    Value::Object(entries)
                        if TEXT_BY_NAME.contains(&key.as_str()) || key.starts_with("x-") =>
                    {
                        for (name, value) in entries {
                            free_text(name, value, mask);
                        }
                    }
                    // The text of a config.
                    Value::String(text) if key == "content" => *text = mask.value(key, text),
                    value => hide_below(value, mask),
                }
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// The value of a variable or label. Extensions may hold anything below it.
fn free_text(name: &str, value: &mut Value, mask: &Mask) {
    match value {
        Value::String(text) => *text = mask.value(name, text),
        Value::Array(items) => items.iter_mut().for_each(|item| free_text(name, item, mask)),
        Value::Object(entries) => entries.iter_mut().for_each(|(name, value)| free_text(name, value, mask)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}
