//! Examples made from schemas.

use serde_json::{Map, Value};

/// How deep examples go.
const MOST_DEPTH: usize = 6;

/// A value that the schema allows: its own example where it has one, and what is required otherwise.
pub(super) fn of(schema: &Value, document: &Value) -> Value {
    made(schema, document, 0)
}

pub(super) fn resolve<'a>(schema: &'a Value, document: &'a Value) -> &'a Value {
    let target = schema["$ref"].as_str().and_then(|reference| document.pointer(reference.strip_prefix('#')?));
    target.unwrap_or(schema)
}

fn made(schema: &Value, document: &Value, depth: usize) -> Value {
    let schema = resolve(schema, document);
    if let Some(example) = schema.get("example").or_else(|| schema["examples"].get(0)) {
        return example.clone();
    }
    if let Some(first) = schema["enum"].get(0) {
        return first.clone();
    }
    for choice in ["oneOf", "anyOf", "allOf"] {
        let wanted = schema[choice].as_array().into_iter().flatten().find(|item| item["type"] != "null");
        if let Some(item) = wanted {
            return made(item, document, depth);
        }
    }
    let kind = match &schema["type"] {
        Value::Array(kinds) => kinds.iter().find(|kind| *kind != "null").and_then(Value::as_str),
        kind => kind.as_str(),
    };
    match kind {
        Some("object") if depth < MOST_DEPTH => object(schema, document, depth),
        Some("object") => Value::Object(Map::new()),
        Some("array") if depth < MOST_DEPTH => Value::Array(vec![made(&schema["items"], document, depth + 1)]),
        Some("array") => Value::Array(Vec::new()),
        Some("integer" | "number") => schema.get("minimum").cloned().unwrap_or_else(|| 1.into()),
        Some("boolean") => true.into(),
        Some("string") if schema["format"] == "date-time" => "2026-01-31T12:00:00Z".into(),
        Some("string") => "…".into(),
        _ => Value::Null,
    }
}

fn object(schema: &Value, document: &Value, depth: usize) -> Value {
    let required: Vec<&str> = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let properties = schema["properties"].as_object().into_iter().flatten();
    let wanted = properties.filter(|(name, _)| required.contains(&name.as_str()));
    wanted.map(|(name, schema)| (name.clone(), made(schema, document, depth + 1))).collect::<Map<_, _>>().into()
}
