//! JSON schemas of types, found by deserializing them: the deserializer writes down what each type asks for, and gives it a
//! value that fits.
//!
//! A type with a field that is flattened, and an enum with a tag inside, do not say what they ask for. The caller gives
//! a sample of these, and their schema.

use std::collections::{BTreeMap, BTreeSet};

use serde::{
    Deserializer,
    de::{
        DeserializeOwned, DeserializeSeed, EnumAccess, Error as _, Expected, IntoDeserializer, MapAccess,
        SeqAccess, VariantAccess, Visitor, value::StrDeserializer,
    },
};
use serde_json::{Error, Map, Value, json};

/// Texts that types accept which do not accept every text.
const TEXTS: [&str; 5] =
    ["2026-01-01T00:00:00Z", "read", "1", "a", "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"];

/// The schemas that were found, by the name of the type.
#[derive(Default)]
pub(crate) struct Schemas {
    pub(crate) found: BTreeMap<String, Value>,
    given: BTreeMap<&'static str, (Value, Value)>,
    /// For each text that some type does not accept: the next one to try, by its path.
    texts: BTreeMap<String, usize>,
    /// The variants of each enum that were tried.
    variants: BTreeMap<&'static str, BTreeMap<&'static str, Value>>,
    /// A field that is left out, to see whether it is required.
    omitted: Option<(String, &'static str)>,
    fields: BTreeMap<String, &'static [&'static str]>,
    /// The structs around the present value, the path to it, and the path of the last text.
    open: Vec<&'static str>,
    path: Vec<String>,
    last_text: String,
    /// Enums of which a variant is still to be tried.
    unfinished: bool,
}

impl Schemas {
    /// The schema of a type that does not say what it asks for, and a sample of it.
    pub(crate) fn give(&mut self, name: &'static str, schema: Value, sample: Value) {
        self.given.insert(name, (schema, sample));
    }

    /// Adds the schema of a type of which it was given.
    pub(crate) fn add_given(&mut self, name: &str) {
        self.found.insert(name.to_owned(), self.given[name].0.clone());
    }

    /// Finds the schema of a type and of all types in it.
    pub(crate) fn add<T: DeserializeOwned>(&mut self) -> Value {
        let schema = self.trace::<T>().unwrap_or_else(|error| {
            panic!("{}: {error} at {}", std::any::type_name::<T>(), self.path.join("."))
        });
        let fields = self.fields.clone();
        for (name, fields) in fields {
            if self.found[&name].get("required").is_some() {
                continue;
            }
            let mut required = Vec::new();
            for field in fields {
                self.omitted = Some((name.clone(), field));
                let before = self.found.clone();
                if self.trace::<T>().is_err_and(|error| error.to_string().contains("missing field")) {
                    required.push(*field);
                }
                self.found = before;
            }
            self.omitted = None;
            if let Some(schema) = self.found.get_mut(&name).and_then(Value::as_object_mut) {
                schema.insert("required".to_owned(), json!(required));
            }
        }
        self.fields.clear();
        schema
    }

    fn trace<T: DeserializeOwned>(&mut self) -> Result<Value, Error> {
        loop {
            self.unfinished = false;
            self.open.clear();
            self.path.clear();
            let mut schema = Value::Null;
            match T::deserialize(Trace { schemas: self, out: &mut schema }) {
                Ok(_) if !self.unfinished => return Ok(schema),
                Ok(_) => {}
                Err(error) if error.to_string().contains("missing field") => return Err(error),
                Err(error) => {
                    let next = self.texts.entry(self.last_text.clone()).or_default();
                    *next += 1;
                    if *next >= TEXTS.len() {
                        return Err(error);
                    }
                }
            }
        }
    }

    fn reference(name: &str) -> Value {
        json!({ "$ref": format!("#/components/schemas/{name}") })
    }

    /// Whether the present value is within another one of the same type.
    fn is_recursion(&self) -> bool {
        let mut seen = BTreeSet::new();
        !self.open.iter().all(|name| seen.insert(name))
    }

    /// The given schema and sample of the type that a visitor expects, such as `struct PartStatus`.
    fn given(&self, expected: &str) -> Option<(&'static str, Value, Value)> {
        let name = expected.rsplit(' ').next()?;
        let (name, (schema, sample)) = self.given.get_key_value(name)?;
        Some((name, schema.clone(), sample.clone()))
    }
}

/// The deserializer of one value.
struct Trace<'t> {
    schemas: &'t mut Schemas,
    out: &'t mut Value,
}

fn expected<'de, V: Visitor<'de>>(visitor: &V) -> String {
    (visitor as &dyn Expected).to_string()
}

macro_rules! numbers {
    ($($method:ident)*) => {
        $(fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
            *self.out = if stringify!($method).contains("_i") {
                json!({ "type": "integer" })
            } else {
                json!({ "type": "integer", "minimum": 0 })
            };
            visitor.visit_u64(1)
        })*
    };
}

macro_rules! texts {
    ($($method:ident)*) => {
        $(fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
            let path = self.schemas.path.join(".");
            let index = self.schemas.texts.get(&path).copied();
            self.schemas.last_text = path;
            *self.out = json!({ "type": "string" });
            // A text of which the first sample was refused is none of a time.
            let text = TEXTS[index.unwrap_or_default()];
            visitor.visit_str(text)
        })*
    };
}

impl<'de> Deserializer<'de> for Trace<'_> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.schemas.given(&expected(&visitor)) {
            Some((name, schema, sample)) => {
                self.schemas.found.insert(name.to_owned(), schema);
                *self.out = Schemas::reference(name);
                sample.deserialize_any(visitor)
            }
            None if expected(&visitor) == "any valid JSON value" => {
                *self.out = json!({});
                visitor.visit_unit()
            }
            None => Err(Error::custom(format!("no sample of {} was given", expected(&visitor)))),
        }
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        if let Some((name, schema, sample)) = self.schemas.given(&expected(&visitor)) {
            self.schemas.found.insert(name.to_owned(), schema);
            *self.out = Schemas::reference(name);
            return sample.deserialize_any(visitor);
        }
        if expected(&visitor).starts_with("struct") {
            return Err(Error::custom(format!("no sample of {} was given", expected(&visitor))));
        }
        let mut values = json!({});
        let is_empty = self.schemas.is_recursion();
        let entries = MapEntries { schemas: self.schemas, values: &mut values, is_over: is_empty };
        let value = visitor.visit_map(entries)?;
        *self.out = json!({ "type": "object", "additionalProperties": values });
        Ok(value)
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        *self.out = json!({ "type": "boolean" });
        visitor.visit_bool(false)
    }

    numbers!(deserialize_i8 deserialize_i16 deserialize_i32 deserialize_i64);
    numbers!(deserialize_u8 deserialize_u16 deserialize_u32 deserialize_u64);
    texts!(deserialize_str deserialize_string deserialize_char);

    fn deserialize_f32<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_f64(visitor)
    }

    fn deserialize_f64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        *self.out = json!({ "type": "number" });
        visitor.visit_f64(1.0)
    }

    fn deserialize_bytes<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Error> {
        Err(Error::custom("JSON has no bytes"))
    }

    fn deserialize_byte_buf<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_bytes(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        if self.schemas.is_recursion() {
            return visitor.visit_none();
        }
        let mut inner = Value::Null;
        let value = visitor.visit_some(Trace { schemas: self.schemas, out: &mut inner })?;
        *self.out = json!({ "anyOf": [inner, { "type": "null" }] });
        Ok(value)
    }

    fn deserialize_unit<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        *self.out = json!({ "type": "null" });
        visitor.visit_unit()
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.deserialize_unit(visitor)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        let left = usize::from(!self.schemas.is_recursion());
        let mut items = Vec::new();
        let value = visitor.visit_seq(Items { schemas: self.schemas, items: &mut items, left })?;
        *self.out = json!({ "type": "array", "items": items.pop().unwrap_or(json!({})) });
        Ok(value)
    }

    fn deserialize_tuple<V: Visitor<'de>>(self, left: usize, visitor: V) -> Result<V::Value, Error> {
        let mut items = Vec::new();
        let value = visitor.visit_seq(Items { schemas: self.schemas, items: &mut items, left })?;
        *self.out = json!({ "type": "array", "prefixItems": items, "minItems": left, "maxItems": left });
        Ok(value)
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        left: usize,
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.deserialize_tuple(left, visitor)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        let Trace { schemas, out } = self;
        *out = Schemas::reference(name);
        schemas.open.push(name);
        let mut properties = Map::new();
        let value = visitor.visit_map(Fields {
            name,
            fields: fields.iter(),
            field: "",
            properties: &mut properties,
            schemas,
        });
        let is_recursion = schemas.is_recursion();
        schemas.open.pop();
        let value = value?;
        if !is_recursion && schemas.omitted.is_none() {
            let known = schemas.fields.insert(name.to_owned(), fields);
            assert!(known.is_none_or(|known| known == fields), "two types are called {name}");
            let mut schema = json!({ "type": "object", "properties": properties });
            // The required fields that were found before stay.
            if let Some(required) = schemas.found.get(name).and_then(|schema| schema.get("required")) {
                schema["required"] = required.clone();
            }
            schemas.found.insert(name.to_owned(), schema);
        }
        Ok(value)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        let Trace { schemas, out } = self;
        *out = Schemas::reference(name);
        let tried = schemas.variants.entry(name).or_default();
        let variant = variants.iter().find(|variant| !tried.contains_key(*variant));
        let variant = variant.or(variants.first()).ok_or_else(|| Error::custom("no variant"))?;
        let mut schema = Value::Null;
        schemas.open.push(name);
        let value = visitor.visit_enum(Variant { name: variant, schemas, schema: &mut schema });
        schemas.open.pop();
        let value = value?;
        let tried = schemas.variants.entry(name).or_default();
        tried.insert(variant, schema);
        schemas.unfinished |= tried.len() < variants.len();
        let all: Vec<&Value> = variants.iter().filter_map(|variant| tried.get(variant)).collect();
        let words: Vec<&Value> = all.iter().filter_map(|schema| schema.get("const")).collect();
        let schema = if words.len() == all.len() {
            json!({ "type": "string", "enum": words })
        } else {
            json!({ "oneOf": all })
        };
        schemas.found.insert(name.to_owned(), schema);
        Ok(value)
    }

    fn deserialize_identifier<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_str(visitor)
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        *self.out = json!({});
        visitor.visit_unit()
    }
}

/// The fields of a struct.
struct Fields<'t> {
    name: &'static str,
    fields: std::slice::Iter<'static, &'static str>,
    field: &'static str,
    properties: &'t mut Map<String, Value>,
    schemas: &'t mut Schemas,
}

impl<'de> MapAccess<'de> for Fields<'_> {
    type Error = Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Error> {
        let omitted = self.schemas.omitted.as_ref().filter(|(name, _)| name == self.name);
        let omitted = omitted.map(|(_, field)| *field);
        let Some(field) = self.fields.find(|field| Some(**field) != omitted) else { return Ok(None) };
        self.field = field;
        let key: StrDeserializer<'_, Error> = (*field).into_deserializer();
        seed.deserialize(key).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Error> {
        let mut schema = Value::Null;
        self.schemas.path.push(format!("{}.{}", self.name, self.field));
        let value = seed.deserialize(Trace { schemas: self.schemas, out: &mut schema })?;
        self.schemas.path.pop();
        self.properties.insert(self.field.to_owned(), schema);
        Ok(value)
    }
}

/// The items of a list.
struct Items<'t> {
    schemas: &'t mut Schemas,
    items: &'t mut Vec<Value>,
    left: usize,
}

impl<'de> SeqAccess<'de> for Items<'_> {
    type Error = Error;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Error> {
        if self.left == 0 {
            return Ok(None);
        }
        self.left -= 1;
        let mut item = Value::Null;
        let value = seed.deserialize(Trace { schemas: self.schemas, out: &mut item })?;
        self.items.push(item);
        Ok(Some(value))
    }
}

/// One entry of a map.
struct MapEntries<'t> {
    schemas: &'t mut Schemas,
    values: &'t mut Value,
    is_over: bool,
}

impl<'de> MapAccess<'de> for MapEntries<'_> {
    type Error = Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Error> {
        if self.is_over {
            return Ok(None);
        }
        self.is_over = true;
        self.schemas.path.push("key".to_owned());
        let key = seed.deserialize(Trace { schemas: self.schemas, out: &mut Value::Null })?;
        self.schemas.path.pop();
        Ok(Some(key))
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Error> {
        seed.deserialize(Trace { schemas: self.schemas, out: self.values })
    }
}

/// One variant of an enum.
struct Variant<'t> {
    name: &'static str,
    schemas: &'t mut Schemas,
    schema: &'t mut Value,
}

impl<'de, 't> EnumAccess<'de> for Variant<'t> {
    type Error = Error;
    type Variant = Self;

    fn variant_seed<V: DeserializeSeed<'de>>(self, seed: V) -> Result<(V::Value, Self), Error> {
        let name: StrDeserializer<'_, Error> = self.name.into_deserializer();
        Ok((seed.deserialize(name)?, self))
    }
}

impl Variant<'_> {
    fn set(self, inner: &Value) {
        let properties: Map<String, Value> = [(self.name.to_owned(), inner.clone())].into_iter().collect();
        *self.schema = json!({ "type": "object", "properties": properties, "required": [self.name] });
    }
}

impl<'de> VariantAccess<'de> for Variant<'_> {
    type Error = Error;

    fn unit_variant(self) -> Result<(), Error> {
        *self.schema = json!({ "const": self.name });
        Ok(())
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, Error> {
        let mut inner = Value::Null;
        let value = seed.deserialize(Trace { schemas: self.schemas, out: &mut inner })?;
        self.set(&inner);
        Ok(value)
    }

    fn tuple_variant<V: Visitor<'de>>(self, length: usize, visitor: V) -> Result<V::Value, Error> {
        let mut inner = Value::Null;
        let value = Trace { schemas: self.schemas, out: &mut inner }.deserialize_tuple(length, visitor)?;
        self.set(&inner);
        Ok(value)
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        let mut properties = Map::new();
        let entries = Fields {
            name: self.name,
            fields: fields.iter(),
            field: "",
            properties: &mut properties,
            schemas: self.schemas,
        };
        let value = visitor.visit_map(entries)?;
        self.set(&json!({ "type": "object", "properties": properties }));
        Ok(value)
    }
}
