//! `/docs`: the API's description, for people. One page without scripts, made from the same document that programs read.

use std::fmt::Write as _;

use serde_json::Value;

use super::example;
use super::html::{escape, line, paragraphs};

const METHODS: [&str; 5] = ["get", "post", "patch", "put", "delete"];

/// One method of one path.
struct Operation<'a> {
    method: &'static str,
    path: &'a str,
    value: &'a Value,
}

impl Operation<'_> {
    fn anchor(&self) -> &str {
        self.value["operationId"].as_str().unwrap_or(self.path)
    }

    fn has_tag(&self, tag: &str) -> bool {
        self.value["tags"][0] == tag
    }
}

/// The whole page.
pub(super) fn page(document: &Value) -> String {
    let operations: Vec<Operation<'_>> = document["paths"]
        .as_object()
        .into_iter()
        .flatten()
        .flat_map(|(path, item)| METHODS.map(|method| (method, path, item.get(method))))
        .filter_map(|(method, path, value)| Some(Operation { method, path, value: value? }))
        .collect();
    let tags: Vec<(&str, &str)> = document["tags"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|tag| Some((tag["name"].as_str()?, tag["description"].as_str()?)))
        .collect();
    let mut page = String::new();
    page.push_str("<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n");
    page.push_str("<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n");
    page.push_str("<meta name=\"color-scheme\" content=\"light dark\">\n<title>Postrider API</title>\n");
    page.push_str("<link rel=\"stylesheet\" href=\"/docs/style.css\">\n</head>\n<body>\n");
    contents(&mut page, &tags, &operations, document);
    let version = escape(document["info"]["version"].as_str().unwrap_or_default());
    let _ = write!(page, "<main>\n<h1>Postrider API <small>{version}</small></h1>\n");
    page.push_str(&paragraphs(document["info"]["description"].as_str().unwrap_or_default()));
    page.push_str("<p>For programs: <a href=\"/openapi.json\">openapi.json</a>.</p>\n");
    for (tag, description) in tags {
        let _ = write!(page, "<section>\n<h2 id=\"{0}\">{0}</h2>\n{1}", escape(tag), paragraphs(description));
        for operation in operations.iter().filter(|operation| operation.has_tag(tag)) {
            show(&mut page, operation, document);
        }
        page.push_str("</section>\n");
    }
    schemas(&mut page, document);
    page.push_str("</main>\n</body>\n</html>\n");
    page
}

fn contents(page: &mut String, tags: &[(&str, &str)], operations: &[Operation<'_>], document: &Value) {
    page.push_str("<nav aria-label=\"Contents\">\n<ul>\n");
    for (tag, _) in tags {
        let _ = write!(page, "<li><a href=\"#{0}\">{0}</a>\n<ul>\n", escape(tag));
        for operation in operations.iter().filter(|operation| operation.has_tag(tag)) {
            let summary = line(operation.value["summary"].as_str().unwrap_or_default().trim_end_matches('.'));
            let _ = writeln!(page, "<li><a href=\"#{}\">{summary}</a></li>", escape(operation.anchor()));
        }
        page.push_str("</ul></li>\n");
    }
    page.push_str("<li><a href=\"#schemas\">schemas</a>\n<ul>\n");
    for name in document["components"]["schemas"].as_object().into_iter().flatten().map(|(name, _)| escape(name)) {
        let _ = writeln!(page, "<li><a href=\"#schema-{name}\">{name}</a></li>");
    }
    page.push_str("</ul></li>\n</ul>\n</nav>\n");
}

fn show(page: &mut String, operation: &Operation<'_>, document: &Value) {
    let summary = operation.value["summary"].as_str().unwrap_or_default().trim_end_matches('.');
    let anchor = escape(operation.anchor());
    let _ = write!(
        page,
        "<article id=\"{anchor}\">\n<h3><a href=\"#{anchor}\">{}</a></h3>\n<p class=\"request\"><b class=\"{1}\">{2}</b> <code>{3}</code></p>\n",
        line(summary),
        operation.method,
        operation.method.to_uppercase(),
        escape(operation.path)
    );
    page.push_str(&paragraphs(operation.value["description"].as_str().unwrap_or_default()));
    let _ = writeln!(page, "<pre><code>{}</code></pre>", escape(&curl(operation, document)));
    parameters(page, operation.value, document);
    let body = &operation.value["requestBody"]["content"]["application/json"]["schema"];
    if !body.is_null() {
        let _ = writeln!(page, "<h4>Body</h4>\n<p>{}</p>", kind(body));
    }
    page.push_str(
        "<h4>Answers</h4>\n<table>\n<thead><tr><th>status</th><th>meaning</th><th>body</th></tr></thead>\n<tbody>\n",
    );
    for (status, answer) in operation.value["responses"].as_object().into_iter().flatten() {
        let answer = example::resolve(answer, document);
        let schema =
            answer["content"].as_object().into_iter().flatten().map(|(_, content)| kind(&content["schema"])).next();
        let _ = writeln!(
            page,
            "<tr><td>{}</td><td>{}</td><td>{}</td></tr>",
            escape(status),
            line(answer["description"].as_str().unwrap_or_default()),
            schema.unwrap_or_default()
        );
    }
    page.push_str("</tbody>\n</table>\n</article>\n");
}

fn curl(operation: &Operation<'_>, document: &Value) -> String {
    let mut command = String::from("curl");
    if operation.method != "get" {
        let _ = write!(command, " -X {}", operation.method.to_uppercase());
    }
    let _ = write!(command, " http://127.0.0.1:8400{}", operation.path);
    if !operation.has_tag("operations") {
        command.push_str(" \\\n  -H 'Authorization: Bearer prk_…'");
    }
    let body = &operation.value["requestBody"]["content"]["application/json"]["schema"];
    if !body.is_null() {
        let body = serde_json::to_string_pretty(&example::of(body, document)).unwrap_or_default();
        let _ = write!(command, " \\\n  -H 'Content-Type: application/json' \\\n  -d '{body}'");
    }
    command
}

fn parameters(page: &mut String, operation: &Value, document: &Value) {
    let parameters: Vec<&Value> =
        operation["parameters"].as_array().into_iter().flatten().map(|one| example::resolve(one, document)).collect();
    if parameters.is_empty() {
        return;
    }
    page.push_str("<h4>Parameters</h4>\n<table>\n<thead><tr><th>name</th><th>in</th><th>type</th><th></th></tr></thead>\n<tbody>\n");
    for parameter in parameters {
        let _ = writeln!(
            page,
            "<tr><td><code>{}</code></td><td>{}</td><td>{}</td><td>{}</td></tr>",
            escape(parameter["name"].as_str().unwrap_or_default()),
            escape(parameter["in"].as_str().unwrap_or_default()),
            kind(&parameter["schema"]),
            line(parameter["description"].as_str().unwrap_or_default())
        );
    }
    page.push_str("</tbody>\n</table>\n");
}

fn schemas(page: &mut String, document: &Value) {
    page.push_str("<section>\n<h2 id=\"schemas\">schemas</h2>\n");
    for (name, schema) in document["components"]["schemas"].as_object().into_iter().flatten() {
        let name = escape(name);
        let _ = writeln!(page, "<article id=\"schema-{name}\">\n<h3><a href=\"#schema-{name}\">{name}</a></h3>");
        page.push_str(&paragraphs(schema["description"].as_str().unwrap_or_default()));
        let required: Vec<&str> =
            schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let Some(properties) = schema["properties"].as_object() else {
            let _ = writeln!(page, "<p>{}</p>\n</article>", kind(schema));
            continue;
        };
        page.push_str("<table>\n<thead><tr><th>field</th><th>type</th><th></th></tr></thead>\n<tbody>\n");
        for (field, property) in properties {
            let optional = if required.contains(&field.as_str()) { "" } else { " <small>optional</small>" };
            let _ = writeln!(
                page,
                "<tr><td><code>{}</code>{optional}</td><td>{}</td><td>{}</td></tr>",
                escape(field),
                kind(property),
                line(property["description"].as_str().unwrap_or_default())
            );
        }
        page.push_str("</tbody>\n</table>\n</article>\n");
    }
    page.push_str("</section>\n");
}

/// What a schema allows, in few words.
fn kind(schema: &Value) -> String {
    if let Some(name) = schema["$ref"].as_str().and_then(|reference| reference.rsplit('/').next()) {
        let name = escape(name);
        return format!("<a href=\"#schema-{name}\">{name}</a>");
    }
    if let Some(values) = schema["enum"].as_array() {
        let values = values.iter().filter_map(Value::as_str).map(|value| format!("<code>{}</code>", escape(value)));
        return values.collect::<Vec<_>>().join(", ");
    }
    for choice in ["oneOf", "anyOf", "allOf"] {
        if let Some(items) = schema[choice].as_array() {
            return items.iter().map(kind).collect::<Vec<_>>().join(" or ");
        }
    }
    let names = match &schema["type"] {
        Value::Array(names) => names.iter().filter_map(Value::as_str).collect(),
        Value::String(name) => vec![name.as_str()],
        _ => vec!["anything"],
    };
    let in_words = |name: &&str| match *name {
        "array" => format!("array of {}", kind(&schema["items"])),
        "string" if schema["format"] == "date-time" => "instant".to_owned(),
        name => escape(name),
    };
    names.iter().map(in_words).collect::<Vec<_>>().join(" or ")
}
