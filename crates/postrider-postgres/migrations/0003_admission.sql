-- What Postrider's functions accept (0004_functions.sql), checked in the database, where the engine's own checks are not at hand.
--
-- It is what `Admission::admit` checks, and codes have the same names; tests compare the two. Nobody but the owner may call
-- what is here. Everything is qualified. No literal has a backslash but those that are written as E'…', because a caller's
-- settings decide how others are read.
--
-- Everything is plpgsql, whose plans are kept; `language sql` would plan anew at each call.

-- --- What is accepted -----------------------------------------------------------------------------------------------

-- By which rules events are admitted, for the functions below. A process that has rules of its own writes them here when it
-- applies migrations. There is one row.
create table postrider.admission (
  only_row          boolean     primary key default true,
  max_payload_bytes bigint      not null default 262144,
  bare_destinations boolean     not null default true,
  require_https     boolean     not null default false,
  allowed_hosts     text[]      not null default '{}',
  allowed_networks  inet[]      not null default '{}',
  changed_at        timestamptz not null default clock_timestamp(),
  constraint there_is_one_row check (only_row)
);
insert into postrider.admission default values;

-- Ends the statement with an error that programs can tell apart: by its state, and by its code, which is also the name of
-- the constraint. `argument` is the column. Nothing of a payload may get into it.
create function postrider.refuse(state text, code text, argument text, detail text, hint text) returns void
  language plpgsql as $$
begin
  raise exception using errcode = state, message = code || ': ' || detail, hint = hint, constraint = code, column = argument;
end $$;

-- A value as it can be shown.
create function postrider.shown(value text) returns text
  language plpgsql immutable as $$
begin
  return coalesce('`' || regexp_replace(left(value, 64) collate "C", '[^ -~]', '?', 'g') || '`', 'null');
end $$;

create function postrider.check_name(state text, code text, argument text, value text) returns void
  language plpgsql as $$
begin
  if value is null or octet_length(value) > 255 or value collate "C" !~ '^[!-~]([ -~]*[!-~])?$' then
    perform postrider.refuse(state, code, argument,
      format('%s has 1 to 255 printable ASCII characters, this one is %s', argument, postrider.shown(value)),
      'use letters, digits and punctuation, without spaces at its ends');
  end if;
end $$;

-- Whether a text is JSON by its grammar. Before Postgres 16 there is no way to ask but to try.
create function postrider.is_json(value text) returns boolean
  language plpgsql immutable as $$
begin
  if current_setting('server_version_num')::integer >= 160000 then
    return pg_input_is_valid(value, 'json');
  end if;
  begin
    perform value::json;
    return true;
  exception when invalid_text_representation then
    return false;
  end;
end $$;

create function postrider.check_payload(payload text, max_bytes bigint) returns void
  language plpgsql as $$
declare
  rest text;
begin
  if payload is null or payload = '' then
    perform postrider.refuse('PR010', 'payload_empty', 'payload', 'the payload is empty', 'it must be one JSON value, such as {}');
  end if;
  if octet_length(payload) > max_bytes then
    perform postrider.refuse('PR011', 'payload_too_large', 'payload',
      format('the payload has %s bytes, at most %s are taken', octet_length(payload), max_bytes),
      'send what identifies the matter, and let receivers ask for the rest');
  end if;
  if convert_to(left(payload, 1), 'UTF8') = decode('efbbbf', 'hex') then
    perform postrider.refuse('PR012', 'payload_byte_order_mark', 'payload',
      'the payload begins with a byte order mark, which JSON does not allow', 'leave it out');
  end if;
  -- Before the grammar, whose parser calls itself for every level. Only what has so many brackets can be so deep. Without its
  -- strings, what is left is brackets, and each turn takes the innermost ones away.
  if length(payload) - length(translate(payload, '[{', '')) > 100 then
    rest := regexp_replace(payload, E'"([^"\\\\]|\\\\.)*"', '', 'g');
    rest := translate(regexp_replace(rest, '[^][{}]', '', 'g'), '{}', '[]');
    for level in 1..100 loop
      rest := replace(rest, '[]', '');
      exit when rest = '';
    end loop;
    if rest <> '' then
      perform postrider.refuse('PR013', 'payload_too_deep', 'payload',
        'the payload is nested more than 100 levels deep, or its brackets do not match', 'many receivers cannot read more');
    end if;
  end if;
  if not postrider.is_json(payload) then
    perform postrider.refuse('PR012', 'payload_not_json', 'payload', 'the payload is not one JSON value',
      'build it with a JSON library, or pass a json or jsonb value');
  end if;
  -- Half of a surrogate pair is no character. Other escapes and whole pairs are taken out first.
  if payload ~* E'\\\\ud[89a-f]' then
    rest := regexp_replace(payload, E'\\\\[^u]', ' ', 'g');
    rest := regexp_replace(rest, E'\\\\u[dD][89abAB][0-9a-fA-F]{2}\\\\u[dD][c-fC-F][0-9a-fA-F]{2}', ' ', 'g');
    if rest ~* E'\\\\ud[89a-f]' then
      perform postrider.refuse('PR012', 'payload_lone_surrogate', 'payload',
        'the payload has half of a surrogate pair, which is no character', 'write characters beyond U+FFFF as a pair, or as they are');
    end if;
  end if;
end $$;

-- JSON as the engine writes it: without spaces, names in the order of their bytes, fractions without zeros at their end.
create function postrider.canonical_json(value jsonb, depth integer) returns text
  language plpgsql as $$
begin
  if depth > 100 and jsonb_typeof(value) in ('object', 'array') then
    perform postrider.refuse('PR007', 'metadata_too_deep', 'metadata', 'metadata is nested more than 100 levels deep', 'make it flat');
  end if;
  case jsonb_typeof(value)
    when 'object' then
      return (select coalesce('{' || string_agg(to_json(x.key)::text || ':' || postrider.canonical_json(x.value, depth + 1), ','
                                                order by x.key collate "C") || '}', '{}')
              from jsonb_each(value) x);
    when 'array' then
      return (select coalesce('[' || string_agg(postrider.canonical_json(x.value, depth + 1), ',' order by x.n) || ']', '[]')
              from jsonb_array_elements(value) with ordinality x (value, n));
    when 'number' then
      if strpos(value::text, '.') = 0 then
        return value::text;
      end if;
      return rtrim(value::text, '0') || case when rtrim(value::text, '0') like '%.' then '0' else '' end;
    else
      return value::text;
  end case;
end $$;

create function postrider.check_metadata(metadata jsonb) returns void
  language plpgsql as $$
declare
  size integer := octet_length(metadata::text);
begin
  if jsonb_typeof(metadata) <> 'object' then
    perform postrider.refuse('PR007', 'metadata_invalid', 'metadata', 'metadata is not an object', 'pass {"name": "value"}');
  end if;
  -- What is so short is neither too large nor too deep.
  if size > 200 then
    size := octet_length(postrider.canonical_json(metadata, 1));
  end if;
  if size > 16384 then
    perform postrider.refuse('PR007', 'metadata_too_large', 'metadata',
      format('metadata has %s bytes, at most 16384 are taken', size), 'keep in it what identifies the matter');
  end if;
end $$;

-- What must be equal for two events under one key to be the same: `AdmittedEvent::fingerprint`, byte for byte. Each part is
-- preceded by its length; a subject that is not there is no part.
create function postrider.fingerprint(event_type text, payload bytea, destination text, deliver_at timestamptz, topic text,
                                      metadata jsonb, subject text, generation bigint) returns bytea
  language plpgsql as $$
declare
  at     timestamp := deliver_at at time zone 'UTC';
  once   text      := 'once ' || case when generation is null then 'None ' else format('Some(%s) ', generation) end || subject;
  hashed bytea     := '';
  part   bytea;
begin
  foreach part in array array[
    convert_to(event_type, 'UTF8'), payload, convert_to(coalesce(destination, ''), 'UTF8'),
    convert_to(coalesce(to_char(at, 'YYYY-MM-DD"T"HH24:MI:SS') || rtrim(rtrim(to_char(at, '.US'), '0'), '.') || 'Z', ''), 'UTF8'),
    convert_to(topic, 'UTF8'), convert_to(postrider.canonical_json(metadata, 1), 'UTF8'),
    convert_to(once, 'UTF8')]
  loop
    continue when part is null;
    hashed := hashed || int8send(octet_length(part)) || part;
  end loop;
  return sha256(hashed);
end $$;

-- --- Where deliveries may go ----------------------------------------------------------------------------------------

create function postrider.address_of(value text) returns inet
  language plpgsql immutable as $$
begin
  return value::inet;
exception when invalid_text_representation then
  return null;
end $$;

-- Why an address is not public. The smallest network that has it says. Whatever carries an IPv4 address in IPv6 is refused,
-- also where that is public; the dispatcher, which looks into them, is more exact.
create function postrider.why_not_public(address inet) returns text
  language plpgsql immutable as $$
begin
  return (
    select k.code
    from (values
      ('169.254.169.254/32'::inet, 'destination_metadata_address'), ('169.254.170.2/32', 'destination_metadata_address'),
      ('169.254.170.23/32', 'destination_metadata_address'), ('100.100.100.200/32', 'destination_metadata_address'),
      ('192.0.0.192/32', 'destination_metadata_address'), ('168.63.129.16/32', 'destination_metadata_address'),
      ('0.0.0.0/8', 'destination_unspecified_address'), ('10.0.0.0/8', 'destination_private_address'),
      ('100.64.0.0/10', 'destination_shared_address'), ('127.0.0.0/8', 'destination_loopback_address'),
      ('169.254.0.0/16', 'destination_link_local_address'), ('172.16.0.0/12', 'destination_private_address'),
      ('192.0.0.0/24', 'destination_reserved_address'), ('192.0.2.0/24', 'destination_documentation_address'),
      ('192.88.99.0/24', 'destination_reserved_address'), ('192.168.0.0/16', 'destination_private_address'),
      ('198.18.0.0/15', 'destination_benchmark_address'), ('198.51.100.0/24', 'destination_documentation_address'),
      ('203.0.113.0/24', 'destination_documentation_address'), ('224.0.0.0/4', 'destination_multicast_address'),
      ('240.0.0.0/4', 'destination_reserved_address'), ('255.255.255.255/32', 'destination_broadcast_address'),
      ('fd00:ec2::254/128', 'destination_metadata_address'), ('fd20:ce::254/128', 'destination_metadata_address'),
      ('::/128', 'destination_unspecified_address'), ('::1/128', 'destination_loopback_address'),
      ('::/96', 'destination_compatible_address'), ('::ffff:0:0/96', 'destination_mapped_address'),
      ('::ffff:0:0:0/96', 'destination_translated_address'), ('64:ff9b::/96', 'destination_nat64_address'),
      ('64:ff9b:1::/48', 'destination_nat64_address'), ('2001:2::/48', 'destination_benchmark_address'),
      ('2001::/32', 'destination_teredo_address'), ('2001::/23', 'destination_reserved_address'),
      ('2001:db8::/32', 'destination_documentation_address'), ('3fff::/20', 'destination_documentation_address'),
      ('2002::/16', 'destination_6to4_address'), ('3ffe::/16', 'destination_reserved_address'),
      ('fc00::/7', 'destination_unique_local_address'), ('fe80::/10', 'destination_link_local_address'),
      ('fec0::/10', 'destination_site_local_address'), ('ff00::/8', 'destination_multicast_address'),
      ('2000::/3', null), ('::/0', 'destination_reserved_address')
    ) as k (network, code)
    where address <<= k.network
    order by masklen(k.network) desc
    limit 1);
end $$;

-- Why a name is not for everybody: it means something only inside a network. None if that inside was opened.
create function postrider.why_not_a_public_name(name text, rules postrider.admission) returns text
  language plpgsql immutable as $$
declare
  dotted text := '.' || name;
begin
  if dotted like any (array['%.localhost', '%.localhost.localdomain', '%.localhost6.localdomain6']) then
    return case when not exists (select from unnest(rules.allowed_networks) n where n && '127.0.0.0/8' or n && '::1')
                then 'destination_localhost_name' end;
  elsif dotted like any (array['%.metadata.google.internal', '%.metadata.goog', '%.metadata', '%.instance-data',
                               '%.instance-data.ec2.internal']) then
    return case when not exists (select from unnest(rules.allowed_networks) n where '169.254.169.254' <<= n)
                then 'destination_metadata_name' end;
  elsif strpos(name, '.') = 0
     or dotted like any (array['%.local', '%.internal', '%.intranet', '%.localdomain', '%.lan', '%.home', '%.corp', '%.private',
                               '%.home.arpa', '%.onion']) then
    return case when cardinality(rules.allowed_networks) = 0 and not postrider.is_listed(name, rules.allowed_hosts)
                then 'destination_local_name' end;
  end if;
  return null;
end $$;

create function postrider.is_listed(host text, patterns text[]) returns boolean
  language plpgsql immutable as $$
begin
  return exists (
    select from unnest(patterns) p
    where p = host or (starts_with(p, '*.') and length(host) >= length(p) and right(host, length(p) - 1) = substr(p, 2)));
end $$;

-- The canonical form of a destination, and its lane: what `DestinationPolicy::check_url` and `Destination::lane` make of
-- it. What those would repair beyond upper case, a default port and a final dot is refused here.
--
-- This is the earlier and friendlier check, of text alone. The dispatcher checks the URL again before every attempt, by its own
-- rules, and each address before it is dialled.
create function postrider.check_destination(url text, rules postrider.admission, out canonical text, out lane text)
  language plpgsql as $$
declare
  syntax    constant text := 'PR020';
  forbidden constant text := 'PR021';
  as_url    constant text := 'write it as https://host/path';
  scheme    text;
  authority text;
  rest      text;
  parts     text[];
  host      text;
  address   inet;
  reason    text;
begin
  if url = '' then
    perform postrider.refuse(syntax, 'destination_empty', 'destination_url', 'the destination is empty', 'leave it out, or ' || as_url);
  elsif octet_length(url) > 2048 then
    perform postrider.refuse(syntax, 'destination_too_long', 'destination_url',
      format('the destination has %s bytes, at most 2048 are taken', octet_length(url)), 'register it as an endpoint with a shorter URL');
  elsif url collate "C" ~ E'[\\u0001-\\u001f\\u007f-\\u009f]' then
    perform postrider.refuse(syntax, 'destination_control_character', 'destination_url',
      'the destination contains a control character', as_url);
  elsif strpos(url, ' ') > 0 then
    perform postrider.refuse(syntax, 'destination_whitespace', 'destination_url', 'the destination contains a space', 'write %20');
  elsif strpos(url, chr(92)) > 0 then
    perform postrider.refuse(syntax, 'destination_backslash', 'destination_url',
      'the destination contains a backslash, which some parsers take for a slash', 'write / or %5C');
  elsif url collate "C" ~ '[^!-~]' then
    perform postrider.refuse(syntax, 'destination_not_ascii', 'destination_url', 'the destination has characters beyond ASCII',
      'write a host in its xn-- form, and anything else percent-encoded');
  end if;

  scheme := lower(substring(url from '^([A-Za-z][A-Za-z0-9+.-]*):') collate "C");
  if scheme is null or scheme not in ('http', 'https') then
    perform postrider.refuse(syntax, 'destination_scheme', 'destination_url', 'only http and https are accepted', as_url);
  end if;
  rest := substr(url, length(scheme) + 2);
  if not starts_with(rest, '//') then
    perform postrider.refuse(syntax, 'destination_host_missing', 'destination_url', 'the destination has no host', as_url);
  end if;
  rest := substr(rest, 3);
  authority := substring(rest from '^[^/?#]*');
  rest := substr(rest, length(authority) + 1);
  if strpos(authority, '@') > 0 then
    perform postrider.refuse(syntax, 'destination_user_info', 'destination_url',
      'the destination has a user name or a password in it', 'a token can be sent in an endpoint''s own header');
  elsif strpos(rest, '#') > 0 then
    perform postrider.refuse(syntax, 'destination_fragment', 'destination_url',
      'the destination has a fragment, which is never sent', 'leave out everything from # on, or write %23');
  end if;

  parts := coalesce(regexp_match(authority, '^([[][^]]*[]])(:(.*))?$'), regexp_match(authority, '^([^]:[]*)(:([^:]*))?$'));
  host := lower(parts[1] collate "C");
  if parts is null then
    perform postrider.refuse(syntax, 'destination_host_invalid', 'destination_url',
      'the destination''s host has brackets or colons out of place', 'put an IPv6 address in brackets');
  elsif host = '' then
    perform postrider.refuse(syntax, 'destination_host_missing', 'destination_url', 'the destination has no host', as_url);
  elsif parts[2] is not null
    and (parts[3] !~ '^[0-9]+$' or length(ltrim(parts[3], '0')) not between 1 and 5 or parts[3]::integer > 65535) then
    perform postrider.refuse(syntax, 'destination_port_invalid', 'destination_url',
      'the destination''s port is not a number from 1 to 65535', 'leave the port out, or correct it');
  elsif strpos(host, '%') > 0 then
    perform postrider.refuse(syntax, 'destination_percent_encoded_host', 'destination_url',
      'the destination''s host is percent-encoded or has a zone', 'write the host out');
  end if;

  if starts_with(host, '[') then
    address := postrider.address_of(case when host ~ '^[[][0-9a-f:.]+[]]$' then trim(both '[]' from host) end);
    host := '[' || host(address) || ']';
  else
    host := regexp_replace(host, '[.]$', '');
    if host = '' or '.' || host || '.' like '%..%' then
      perform postrider.refuse(syntax, 'destination_empty_label', 'destination_url',
        'the destination''s host has an empty label: two dots in a row, or one at its beginning', as_url);
    end if;
    -- A name that ends in a number is an address to every parser of URLs, in one of many spellings.
    if host ~ '(^|[.])([0-9]+|0x[0-9a-f]*)$' then
      address := case when host ~ '^((25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])([.]|$)){4}$' then host::inet end;
      host := host(address);
    elsif length(host) > 253 or host !~ '^[a-z0-9_-]{1,63}([.][a-z0-9_-]{1,63})*$' then
      perform postrider.refuse(syntax, 'destination_host_invalid', 'destination_url',
        'the destination''s host is not a domain name', 'a name has labels of letters, digits and hyphens, joined by dots');
    end if;
  end if;
  if host is null then
    perform postrider.refuse(syntax, 'destination_address_invalid', 'destination_url',
      'the destination''s host looks like an IP address, but is none in plain spelling',
      'write IPv4 as four decimal numbers, IPv6 in brackets');
  end if;

  if rest !~ '^/' then
    rest := '/' || rest;
  end if;
  if split_part(rest, '?', 1) ~ '["<>`{}^]' or strpos(rest, '?') > 0 and substr(rest, strpos(rest, '?')) ~ '["<>'']'
     or split_part(rest, '?', 1) ~* '/([.]|%2e){1,2}(/|$)' then
    perform postrider.refuse(syntax, 'destination_not_canonical', 'destination_url',
      'the destination has characters that must be percent-encoded, or a path with . or .. in it', 'write the path out, and percent-encode');
  end if;
  lane := host || case when parts[3]::integer <> case scheme when 'https' then 443 else 80 end then ':' || parts[3]::integer else '' end;
  canonical := scheme || '://' || lane || rest;
  if octet_length(canonical) > 2048 then
    perform postrider.refuse(syntax, 'destination_too_long', 'destination_url',
      'the destination has more than 2048 bytes', 'register it as an endpoint with a shorter URL');
  end if;

  if rules.require_https and scheme <> 'https' then
    perform postrider.refuse(forbidden, 'destination_https_required', 'destination_url',
      'the destination uses http, and only https is accepted', 'use an https URL, or set `require_https` to false');
  end if;
  if address is null then
    reason := postrider.why_not_a_public_name(host, rules);
  elsif not exists (select from unnest(rules.allowed_networks) n where address <<= n)
     -- Postgres spells these with dots, parsers of URLs do not.
     or (strpos(host, ':') > 0 and strpos(host, '.') > 0) then
    reason := postrider.why_not_public(address);
  end if;
  if reason is not null then
    perform postrider.refuse(forbidden, reason, 'destination_url',
      format('%s is not on the public internet', postrider.shown(host)),
      'to allow it, add its network to `allowed_networks` of the server''s configuration, and restart it');
  end if;
  if cardinality(rules.allowed_hosts) > 0 and not postrider.is_listed(trim(both '[]' from host), rules.allowed_hosts) then
    perform postrider.refuse(forbidden, 'destination_host_not_allowed', 'destination_url',
      format('the host %s matches no pattern of `allowed_hosts`', postrider.shown(host)),
      'add the host to `allowed_hosts` of the server''s configuration, and restart it');
  end if;
end $$;
