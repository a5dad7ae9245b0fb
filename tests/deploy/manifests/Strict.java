import com.fasterxml.jackson.databind.DeserializationFeature;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.MapperFeature;
import com.fasterxml.jackson.databind.introspect.Annotated;
import com.fasterxml.jackson.databind.introspect.JacksonAnnotationIntrospector;
import com.fasterxml.jackson.dataformat.yaml.YAMLMapper;
import io.fabric8.kubernetes.api.model.ConfigMap;
import io.fabric8.kubernetes.api.model.Pod;
import io.fabric8.kubernetes.api.model.Service;
import io.fabric8.kubernetes.api.model.apps.Deployment;
import io.fabric8.kubernetes.api.model.networking.v1.NetworkPolicy;
import io.fabric8.openshift.api.model.monitoring.v1.PodMonitor;
import io.fabric8.openshift.api.model.monitoring.v1.PrometheusRule;
import io.fabric8.openshift.api.model.monitoring.v1.ServiceMonitor;
import io.strimzi.api.kafka.model.connect.KafkaConnect;
import io.strimzi.api.kafka.model.connector.KafkaConnector;
import java.util.List;
import java.util.Map;

/**
 * Reads resources in YAML from standard input, each with the class that its API publishes. A property that the class
 * does not have is an error, where the class itself would keep it among its additional properties.
 */
public final class Strict {
    private static final Map<String, Class<?>> KINDS = Map.ofEntries(
            Map.entry("v1 ConfigMap", ConfigMap.class),
            Map.entry("v1 Pod", Pod.class),
            Map.entry("v1 Service", Service.class),
            Map.entry("apps/v1 Deployment", Deployment.class),
            Map.entry("networking.k8s.io/v1 NetworkPolicy", NetworkPolicy.class),
            Map.entry("monitoring.coreos.com/v1 PodMonitor", PodMonitor.class),
            Map.entry("monitoring.coreos.com/v1 PrometheusRule", PrometheusRule.class),
            Map.entry("monitoring.coreos.com/v1 ServiceMonitor", ServiceMonitor.class),
            Map.entry("kafka.strimzi.io/v1 KafkaConnect", KafkaConnect.class),
            Map.entry("kafka.strimzi.io/v1 KafkaConnector", KafkaConnector.class));

    public static void main(String[] arguments) throws Exception {
        YAMLMapper mapper = YAMLMapper.builder()
                .enable(DeserializationFeature.FAIL_ON_UNKNOWN_PROPERTIES)
                .disable(MapperFeature.ALLOW_COERCION_OF_SCALARS)
                .annotationIntrospector(new WithoutAdditionalProperties())
                .build();
        List<JsonNode> resources =
                mapper.readerFor(JsonNode.class).<JsonNode>readValues(System.in).readAll();
        for (JsonNode resource : resources) {
            String kind = resource.path("apiVersion").asText() + " " + resource.path("kind").asText();
            if (!KINDS.containsKey(kind)) {
                throw new IllegalArgumentException("no class for " + kind);
            }
            mapper.treeToValue(resource, KINDS.get(kind));
            System.out.println(kind + " " + resource.at("/metadata/name").asText());
        }
    }

    private static final class WithoutAdditionalProperties extends JacksonAnnotationIntrospector {
        private static final long serialVersionUID = 1;

        @Override
        public Boolean hasAnySetter(Annotated annotated) {
            return false;
        }
    }
}
