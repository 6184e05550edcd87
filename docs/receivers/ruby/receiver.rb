require "openssl"
require "set"
require "webrick"

TOLERANCE = 5 * 60
KEY = ENV.fetch("WEBHOOK_SECRET").delete_prefix("whsec_").unpack1("m0")

# Whether the body and the headers are what the holder of the key has signed, not long ago.
def verified?(request, body, now = Time.now.to_i)
  id, timestamp, signatures = %w[webhook-id webhook-timestamp webhook-signature].map { |name| request[name].to_s }
  return false if id.empty? || !timestamp.match?(/\A\d{1,12}\z/)
  return false if (now - timestamp.to_i).abs > TOLERANCE

  signed = "#{id}.#{timestamp}.".b + body.b
  expected = "v1," + [OpenSSL::HMAC.digest("SHA256", KEY, signed)].pack("m0")
  # Several while a secret rotates, and possibly of other versions: one that fits is enough.
  signatures.split.any? { |signature| OpenSSL.secure_compare(signature, expected) }
end

$stdout.sync = true
seen = Set.new
lock = Mutex.new
port = ENV.fetch("PORT", "9400").to_i
server = WEBrick::HTTPServer.new(BindAddress: "127.0.0.1", Port: port, AccessLog: [], Logger: WEBrick::Log.new(File::NULL))

server.mount_proc("/") do |request, response|
  # The bytes as they came: JSON that was read and written again is other bytes.
  body = request.body.to_s
  if body.bytesize > 1_000_000
    response.status = 413
  elsif request.request_method != "POST" || !verified?(request, body)
    response.status = 401
  else
    lock.synchronize do
      id = request["webhook-id"]
      puts seen.add?(id) ? "#{request["postrider-event-type"]} #{id} #{body}" : "seen before #{id}"
    end
    response.status = 204
  end
end

trap("INT") { server.shutdown }
puts "listening on http://127.0.0.1:#{server.config[:Port]}/"
server.start
