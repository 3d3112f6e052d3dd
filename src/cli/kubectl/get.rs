//! `driftless get`: prints objects as tables, documents, names or by a template, once or whenever they change.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use serde_json::{Value, json};
use tokio::time::sleep;

use super::{
    args::GetArgs,
    args::GetOutput,
    columns::{self, Width},
    events, jsonpath,
    objects::{self, Scope, Wanted, at, kind_of, objects, say_missing},
    unobserved::warn_of_unobserved,
};
use crate::{
    cli::Context, cli::Error, cli::ExitStatus, cli::client::Client, cli::output, cli::output::print,
    cli::table::Cell, cli::table::Table,
};
use driftless_model::{Kind, Selector};

const LOOK_EVERY: Duration = Duration::from_secs(1);

pub(in crate::cli) async fn get(args: &GetArgs, context: &Context<'_>) -> Result<ExitStatus, Error> {
    if args.what.first().is_some_and(|it| events::are_meant(it)) {
        return events::get(args, context).await;
    }
    let wanted = Wanted::parse(&args.what)?;
    let selector = args.selector.as_deref();
    if let Some(selector) = selector {
        if wanted.iter().any(|it| it.name.is_some()) {
            let text = "a name and a selector cannot be combined".to_owned();
            return Err(objects::Error::Usage(text).into());
        }
        Selector::parse(selector).map_err(objects::Error::from)?;
    }
    let fields = FieldSelector::parse(args.field_selector.as_deref().unwrap_or_default())?;
    let client = Client::new(&args.server, context.environment)?;
    let scope =
        Scope { namespace: args.scope.namespace.as_deref(), app: args.scope.app.as_deref(), selector };
    let mut exit_status = ExitStatus::Success;
    let mut items = Vec::new();
    let mut is_missing = false;
    for one in &wanted {
        let found = objects(&client, one, &scope).await?;
        if found.is_empty() && one.name.is_some() {
            is_missing = true;
            if !args.ignore_not_found {
                say_missing(one, scope.app, &client, context).await;
                exit_status = ExitStatus::Negative;
            }
        }
        items.extend(found);
    }
    items.retain(|item| fields.admits(item));
    let is_one = wanted.len() == 1 && wanted.iter().all(|it| it.name.is_some());
    let is_mixed = wanted.iter().map(|it| &it.kinds).collect::<BTreeSet<_>>().len() > 1
        || wanted.iter().any(|it| it.kinds.len() > 1);
    if items.is_empty() && is_missing && args.ignore_not_found {
        return Ok(ExitStatus::Success);
    }
    let page = Printer { args, fields, is_one, is_mixed };
    let is_table = matches!(args.output, None | Some(GetOutput::Wide));
    if items.is_empty() && exit_status == ExitStatus::Success && is_table {
        context.screen.say(match scope.namespace {
            Some(namespace) => format!("No resources found in {namespace} namespace."),
            None => "No resources found".to_owned(),
        });
    }
    if !items.is_empty() || (!is_table && exit_status == ExitStatus::Success) {
        print(&page.render(items.clone(), context))?;
    }
    if exit_status == ExitStatus::Success {
        warn_of_unobserved(scope.app, &items, &client, context).await;
    }
    if !args.watch || exit_status == ExitStatus::Negative {
        return Ok(exit_status);
    }
    page.follow(&client, &wanted, &scope, items, context).await
}

/// Selects objects by their fields (`--field-selector`): all terms must hold.
#[derive(Clone, Debug, Default)]
struct FieldSelector(Vec<FieldTerm>);

#[derive(Clone, Debug)]
struct FieldTerm {
    pointer: String,
    value: String,
    is_equal: bool,
}

/// The fields by which an API server selects, of all kinds and of pods.
const SELECTABLE: [&str; 7] = [
    "metadata.name",
    "metadata.namespace",
    "spec.nodeName",
    "spec.restartPolicy",
    "status.phase",
    "status.podIP",
    "type",
];

impl FieldSelector {
    fn parse(text: &str) -> Result<Self, objects::Error> {
        let term = |term: &str| {
            let (pair, is_equal) = match term.split_once("!=") {
                Some(pair) => (Some(pair), false),
                None => (term.split_once("==").or_else(|| term.split_once('=')), true),
            };
            let (field, value) = pair.ok_or_else(|| {
                objects::Error::Usage(format!("invalid field selector: {term}; write FIELD=VALUE"))
            })?;
            if !SELECTABLE.contains(&field) {
                let text =
                    format!("field label not supported: {field}; use one of {}", SELECTABLE.join(", "));
                return Err(objects::Error::Usage(text));
            }
            let pointer = format!("/{}", field.replace('.', "/"));
            Ok(FieldTerm { pointer, value: value.to_owned(), is_equal })
        };
        text.split(',')
            .map(str::trim)
            .filter(|it| !it.is_empty())
            .map(term)
            .collect::<Result<_, _>>()
            .map(Self)
    }

    fn admits(&self, item: &Value) -> bool {
        self.0.iter().all(|term| (at(item, &term.pointer) == term.value) == term.is_equal)
    }
}

/// Prints the objects that were found.
struct Printer<'a> {
    args: &'a GetArgs,
    fields: FieldSelector,
    /// One object was named, so that it is not printed as a list.
    is_one: bool,
    /// There are several kinds, so that names include the kind.
    is_mixed: bool,
}

impl Printer<'_> {
    fn render(&self, mut items: Vec<Value>, context: &Context<'_>) -> String {
        self.sort(&mut items);
        match &self.args.output {
            None | Some(GetOutput::Wide) => self.tables(&items, context),
            Some(GetOutput::Name) => items.iter().flat_map(|it| [qualified(it), "\n".to_owned()]).collect(),
            Some(GetOutput::Columns(columns)) => {
                let heads: Vec<&str> = columns.iter().map(|(head, _)| head.as_str()).collect();
                let mut table = Table::new(0, &heads).spaced(3);
                for item in &items {
                    table.row(columns.iter().map(|(_, path)| cell(path, item)));
                }
                self.finish(&table, context)
            }
            Some(GetOutput::JsonPath(template)) => template.render(&self.document(items)),
            Some(GetOutput::Json) => output::json(&self.document(items)),
            Some(GetOutput::Yaml) => output::yaml(&self.document(items)),
        }
    }

    /// The named object, or a list.
    fn document(&self, mut items: Vec<Value>) -> Value {
        if self.is_one && items.len() == 1 {
            return items.remove(0);
        }
        json!({ "apiVersion": "v1", "kind": "List", "items": items, "metadata": {} })
    }

    fn sort(&self, items: &mut [Value]) {
        let Some(path) = &self.args.sort_by else { return };
        let key = |it: &Value| {
            let found = path.find(it);
            let first = found.first();
            // Numbers sort by value, before all text.
            let number = first.and_then(|it| it.as_u64());
            (number.is_none(), number, first.map_or_else(String::new, |it| jsonpath::text(it)))
        };
        items.sort_by_cached_key(key);
    }

    /// One table for each kind.
    fn tables(&self, items: &[Value], context: &Context<'_>) -> String {
        let mut by_kind: BTreeMap<Kind, Vec<&Value>> = BTreeMap::new();
        for item in items {
            by_kind.entry(kind_of(item)).or_default().push(item);
        }
        let tables = by_kind.into_iter().map(|(kind, items)| self.table(kind, &items, items.iter(), context));
        tables.collect::<Vec<_>>().join("\n")
    }

    fn table<'v>(
        &self,
        kind: Kind,
        all: &[&'v Value],
        items: impl Iterator<Item = &'v &'v Value>,
        context: &Context<'_>,
    ) -> String {
        let is_wide = self.args.output == Some(GetOutput::Wide);
        let width = if is_wide { Width::Wide } else { Width::Normal };
        let namespaces: BTreeSet<String> = all.iter().map(|it| at(it, "/metadata/namespace")).collect();
        let has_namespace = kind != Kind::Namespace && (self.args.all_namespaces || namespaces.len() > 1);
        let mut head: Vec<&str> = columns::head(kind, width);
        if has_namespace {
            head.insert(0, "NAMESPACE");
        }
        let of_labels: Vec<String> = self
            .args
            .label_columns
            .iter()
            .map(|label| label.rsplit('/').next().unwrap_or(label).to_uppercase())
            .collect();
        head.extend(of_labels.iter().map(String::as_str));
        if self.args.show_labels {
            head.push("LABELS");
        }
        let mut table = Table::new(0, &head).spaced(3);
        for item in items {
            let name = if self.is_mixed { qualified(item) } else { at(item, "/metadata/name") };
            let namespace = has_namespace.then(|| Cell::from(at(item, "/metadata/namespace")));
            let labels =
                self.args.show_labels.then(|| columns::labels(item.pointer("/metadata/labels")).into());
            let row = columns::row(kind, item, width, context.clock.now());
            let label =
                |key: &String| item["metadata"]["labels"][key.as_str()].as_str().unwrap_or_default().into();
            let columns = self.args.label_columns.iter().map(label);
            table.row(namespace.into_iter().chain([name.into()]).chain(row).chain(columns).chain(labels));
        }
        self.finish(&table, context)
    }

    fn finish(&self, table: &Table, context: &Context<'_>) -> String {
        let text = table.render(context.colours);
        if self.args.no_headers { columns::without_head(&text).to_owned() } else { text }
    }

    /// Prints new and changed objects. Waits for an agent that is being restarted.
    async fn follow(
        &self,
        client: &Client,
        wanted: &[Wanted],
        scope: &Scope<'_>,
        mut known: Vec<Value>,
        context: &Context<'_>,
    ) -> Result<ExitStatus, Error> {
        let mut told = false;
        loop {
            sleep(LOOK_EVERY).await;
            let mut items = Vec::new();
            for one in wanted {
                match objects(client, one, scope).await {
                    Ok(found) => items.extend(found.into_iter().filter(|item| self.fields.admits(item))),
                    Err(error) if error.is_absence() => {
                        if !std::mem::replace(&mut told, true) {
                            context.screen.say(format!("{error}; trying again"));
                        }
                        items.clone_from(&known);
                        break;
                    }
                    Err(error) => return Err(error.into()),
                }
            }
            let changed: Vec<&Value> = items.iter().filter(|it| !known.contains(it)).collect();
            if !changed.is_empty() {
                told = false;
                print(&self.changes(&items, &changed, context))?;
            }
            known = items;
        }
    }

    /// Rows in the columns of the whole table, or documents one after the other.
    fn changes(&self, items: &[Value], changed: &[&Value], context: &Context<'_>) -> String {
        if !matches!(self.args.output, None | Some(GetOutput::Wide)) {
            let one = Printer {
                args: self.args,
                fields: self.fields.clone(),
                is_one: true,
                is_mixed: self.is_mixed,
            };
            let texts = changed.iter().map(|it| one.render(vec![(*it).clone()], context));
            return texts.collect();
        }
        let mut out = String::new();
        for kind in Kind::ALL {
            let all: Vec<&Value> = items.iter().filter(|it| kind_of(it) == kind).collect();
            let text = self.table(kind, &all, all.iter(), context);
            let skipped = usize::from(!self.args.no_headers);
            for (item, line) in all.iter().zip(text.lines().skip(skipped)) {
                if changed.contains(item) {
                    out.push_str(line);
                    out.push('\n');
                }
            }
        }
        out
    }
}

/// `deployment.apps/web`
fn qualified(it: &Value) -> String {
    format!("{}/{}", kind_of(it).qualified(), at(it, "/metadata/name"))
}

fn cell(path: &jsonpath::JsonPath, item: &Value) -> Cell {
    let found: Vec<String> = path.find(item).into_iter().map(jsonpath::text).collect();
    if found.is_empty() { "<none>".into() } else { found.join(",").into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_select_objects_as_in_kubectl() {
        let pod =
            json!({ "metadata": { "name": "web", "namespace": "shop" }, "status": { "phase": "Running" } });
        let admits = |text: &str| FieldSelector::parse(text).map(|fields| fields.admits(&pod)).ok();
        for (text, expected) in [
            ("", Some(true)),
            ("metadata.name=web", Some(true)),
            ("metadata.name==web,status.phase!=Running", Some(false)),
            ("status.phase!=Failed, metadata.namespace=shop", Some(true)),
            ("spec.nodeName=", Some(true)),
            ("metadata.uid=1", None),
            ("metadata.name", None),
        ] {
            assert_eq!(admits(text), expected, "{text}");
        }
    }
}
