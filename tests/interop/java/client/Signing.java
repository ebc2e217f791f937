import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.HashMap;
import java.util.Map;
import java.util.TreeMap;
import javax.crypto.Mac;
import javax.crypto.spec.SecretKeySpec;
import org.apache.rocketmq.remoting.RPCHook;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;

/** Signs what the client sends, as the client's own hook does, which is in no jar of 4.9.8; as another user from then on. */
final class Signing implements RPCHook {
    private volatile String accessKey = "";
    private volatile String secret = "";

    void use(String accessKey, String secret) {
        this.accessKey = accessKey;
        this.secret = secret;
    }

    @Override
    public void doBeforeRequest(String address, RemotingCommand request) {
        if (accessKey.isEmpty()) {
            return;
        }
        if (request.getExtFields() == null) {
            request.setExtFields(new HashMap<>());
        }
        request.makeCustomHeaderToNet();
        Map<String, String> fields = request.getExtFields();
        fields.remove("Signature");
        fields.put("AccessKey", accessKey);
        StringBuilder text = new StringBuilder();
        new TreeMap<>(fields).forEach((name, value) -> text.append(value == null ? "" : value));
        try {
            Mac mac = Mac.getInstance("HmacSHA1");
            mac.init(new SecretKeySpec(secret.getBytes(StandardCharsets.UTF_8), "HmacSHA1"));
            mac.update(text.toString().getBytes(StandardCharsets.UTF_8));
            if (request.getBody() != null) {
                mac.update(request.getBody());
            }
            fields.put("Signature", Base64.getEncoder().encodeToString(mac.doFinal()));
        } catch (java.security.GeneralSecurityException e) {
            throw new IllegalStateException(e);
        }
    }

    @Override
    public void doAfterResponse(String address, RemotingCommand request, RemotingCommand response) {
    }
}
